import { html, useState } from '../ui.js'
import { get, send } from '../api.js'
import { useData } from '../data.js'
import { namespace, place, setQuery, to } from '../router.js'
import { count, now, Time } from '../time.js'
import { Act, ask, attempt, Dialog, Facts, Load, Meter, Panel, Table, Title } from '../parts/bits.js'
import { Icon, Status } from '../parts/icons.js'

export function Queues() {
  const list = useData((abort) => get('/queues', {}, { abort }), [place.value.query.get('ns')],
    { topics: ['runs'], every: 3000 })
  const [editing, setEditing] = useState(null)
  const path = (q, verb) => `/queues/${encodeURIComponent(q.name)}${verb ? ':' + verb : ''}`, at = (q) =>
    ({ params: { namespace: q.namespace } })
  const toggle = async (q) => {
    await attempt(`${q.name} ${q.paused ? 'goes on' : 'is paused'}.`, () =>
      send('POST', path(q, q.paused ? 'resume' : 'pause'), at(q)))
    list.reload()
  }
  return html`<${Title} title="Queues" sub="Lines of work for pull workers, with a limit and a pause."
    actions=${html`<${Act} className="primary" onClick=${() => setEditing({})}>
    <${Icon} name="plus"/>New queue<//>`}/>
    <${Panel}><${Load} of=${list} bones=${5} empty=${{ when: (d) => !d.queues.length, icon: 'queues',
      title: 'No queues', text: 'A job of type queue puts its runs into a queue, and your own workers take them.',
      command: `carillon submit --name mail --schedule '@every 1m' --queue mail` }}>
      ${(d) => html`<${Table} label="Queues" rows=${d.queues} id=${(q) => q.namespace + '/' + q.name} cols=${[
        ['Queue', (q) => html`<strong>${q.name}</strong>${namespace() === '*' &&
          html`<span class="sub">${q.namespace}</span>`}`, 'minmax(110px, 1fr)', 'lead'],
        ['State', (q) => q.paused ? html`<${Status} of="paused"/>` : html`<${Status} of="running" label="open"/>`,
          '90px'],
        ['Running', (q) => html`<span>${count(q.running)}${q.concurrency ? ` of ${count(q.concurrency)}` : ''}
          </span>${q.concurrency > 0 && html`<${Meter} value=${q.running} of=${q.concurrency}
          label=${`${q.running} of ${q.concurrency}`} warn=${1} bad=${2}/>`}`, '120px', 'said'],
        ['Backlog', (q) => html`${count(q.backlog)}${q.backlog_more ? '+' : ''}
          ${q.oldest_due_at && html`<span class="sub">oldest <${Time} at=${q.oldest_due_at}/></span>`}`, '130px',
          'said'],
        ['', (q) => html`<span class="muted clamp" title=${q.wait_reason}>${q.wait_reason ?? ''}</span>`,
          'minmax(80px, 2fr)', 'wide'],
        ['Workers', (q) => q.workers?.length ?? '–', '66px', 'num minor'],
          ['Jobs', (q) => count(q.jobs), '60px', 'num minor'],
        ['', (q) => html`<${Act} className="quiet" onClick=${() => toggle(q)}>${q.paused ? 'Resume' : 'Pause'}<//>
          <${Act} className="quiet" onClick=${() => setEditing(q)}>Limit<//>`, '136px', 'actions']]}/>`}<//><//>
    ${editing && html`<${EditQueue} q=${editing} close=${() => { setEditing(null); list.reload() }}/>`}`
}

function EditQueue({ q, close }) {
  const [name, setName] = useState(q.name ?? ''), [limit, setLimit] = useState(String(q.concurrency ?? 0)),
    [error, setError] = useState(null)
  const save = async () => {
    try {
      await send('PUT', `/queues/${encodeURIComponent(name)}`, { body: { concurrency: Number(limit), paused: q.paused ??
        false }, params: q.namespace ? { namespace: q.namespace } : {} })
      close()
    } catch (e) { setError(e) }
  }
  const wrong = (f) => error?.field === f && html`<span class="wrong" role="alert">${error.detail}</span>`
  return html`<${Dialog} title=${q.name ? `Limit of ${q.name}` : 'New queue'} onClose=${close}
    footer=${html`<button class="button" onClick=${close}>Cancel</button>
    <${Act} className="primary" disabled=${!name} onClick=${save}>Save<//>`}>
    <div class="form">${!q.name && html`<div class="field"><label for="q-name">Name</label>
      <input id="q-name" class="input" value=${name} onInput=${(e) => setName(e.target.value)}/>${wrong('name')}</div>`}
      <div class="field"><label for="q-limit">Runs that workers may have at once</label>
        <input id="q-limit" class="input" type="number" min="0" value=${limit}
        onInput=${(e) => setLimit(e.target.value)}/><span class="hint">0: no limit</span>${wrong('concurrency')}</div>
        </div>
    ${error && error.field !== 'name' && error.field !== 'concurrency' &&
      html`<p class="s-failed small" role="alert">${error.detail} ${error.remedy}</p>`}<//>`
}

export function Workers() {
  const status = useData((abort) => get('/status', {}, { abort }), [], { topics: ['cluster'], every: 3000 })
  const busy = status.data?.workers.reduce((n, w) => n + w.busy, 0), slots = status.data?.workers.reduce((n, w) =>
    n + w.slots, 0)
  return html`<${Title} title="Workers"
    sub=${status.data ?
    `${count(status.data.workers.length)} ${status.data.workers.length === 1 ? 'worker' : 'workers'}, ` +
      `${count(busy)} of ${count(slots)} slots are busy` :
    'Processes that take runs and report results.'}/>
    <${Panel}><${Load} of=${status} bones=${5} empty=${{ when: (d) => !d.workers.length, icon: 'workers',
      title: 'No worker is registered',
      text: 'Every node has one, which registers once there is a leader. You can run more anywhere:',
      command: 'carillon worker --addr HOST:7400' }}>
      ${(d) => html`<${Table} label="Workers" rows=${d.workers} id=${(w) => w.worker} cols=${[
        ['Worker', (w) => html`<a class="main" href=${to('/runs', { worker: w.worker })}>${w.worker}</a>
          ${w.where && html`<span class="sub" title=${w.where}>${w.where}</span>`}`, 'minmax(150px, 1.6fr)', 'lead'],
        ['Busy', (w) => html`<span>${count(w.busy)} of ${count(w.slots)}</span>
          <${Meter} value=${w.busy} of=${w.slots} label=${`${w.busy} of ${w.slots} slots`}/>`, '140px'],
        ['Types', (w) => w.types.map((t) => html`<span class="tag">${t}</span> `), 'minmax(210px, 1fr)', 'wide'],
        ['Tags', (w) => Object.entries(w.tags ?? {}).map(([k, v]) => html`<span class="tag">${k}=${v}</span> `),
          'minmax(80px, 1fr)', 'minor'],
        ['Namespace', (w) => html`<span class="muted">${w.namespace ?? 'all'}</span>`, '96px', 'minor'],
        ['Heard', (w) => w.waiting ? html`<span class="s-missed">not since the last leader</span>` :
          html`<${Time} at=${w.last_heard}/>`, '110px']]}/>`}<//><//>`
}

const week = ['mon', 'tue', 'wed', 'thu', 'fri', 'sat', 'sun']
const pad = (n) => String(n).padStart(2, '0')

export function Calendars() {
  const list = useData((abort) => get('/calendars', {}, { abort }), [place.value.query.get('ns')], { every: 15000 })
  const [editing, setEditing] = useState(null)
  const shown = place.value.query.get('month') ?? new Date(now()).toISOString().slice(0, 7)
  const move = (by) => { const [y, m] = shown.split('-').map(Number); const d = new Date(Date.UTC(y, m - 1 + by, 1));
    setQuery({ month: d.toISOString().slice(0, 7) }) }
  const remove = async (c) => {
    if (!await ask({ title: `Delete ${c.name}?`, text: 'A calendar that jobs use cannot be deleted.', yes: 'Delete',
      danger: true })) return
    await attempt(`${c.name} was deleted.`, () => send('DELETE', `/calendars/${encodeURIComponent(c.name)}`,
      { params: { namespace: c.namespace } }))
    list.reload()
  }
  return html`<${Title} title="Calendars" sub="Times in which jobs do not fire."
    actions=${html`<${Act} className="primary" onClick=${() => setEditing({ timezone: 'UTC' })}>
    <${Icon} name="plus"/>New calendar<//>`}/>
    <${Load} of=${list} bones=${6} empty=${{ when: (d) => !d.calendars.length, icon: 'calendars', title: 'No calendars',
      text: 'A calendar has dates, weekdays, hours or intervals in which the jobs that use it do not fire.' }}>
      ${(d) => html`<div class="toolbar"><button class="button icon-only" aria-label="Previous month"
        onClick=${() => move(-1)}><${Icon} name="left"/></button><strong aria-live="polite">${monthName(shown)}</strong>
        <button class="button icon-only" aria-label="Next month" onClick=${() => move(1)}><${Icon} name="right"/>
        </button></div>
        <div class="nodes fill">${d.calendars.map((c) => html`<${Panel} key=${c.namespace + c.name} title=${c.name}
          aside=${namespace() === '*' && c.namespace} actions=${html`<${Act} className="quiet"
          onClick=${() => setEditing(c)}>Edit<//><${Act} className="quiet danger"
          onClick=${() => remove(c)}>Delete<//>`}>
          <div class="body stack"><${Month} c=${c} month=${shown}/><${Facts}
            rows=${[['Zone', c.timezone], ['Dates', c.dates?.join(', ')], ['Weekdays', c.weekdays?.join(', ')],
            ['Every day', c.daily?.join(', ')], ['Intervals', c.windows?.length &&
            c.windows.map((w) => html`<div>${w.from} to ${w.to}</div>`)]]}/></div><//>`)}</div>`}<//>
    ${editing && html`<${EditCalendar} c=${editing} close=${() => { setEditing(null); list.reload() }}/>`}`
}

const monthName = (m) => new Intl.DateTimeFormat('en-GB', { month: 'long', year: 'numeric',
  timeZone: 'UTC' }).format(Date.parse(m + '-01T00:00:00Z'))

/** A day that is out as a whole is dark; one with hours that are out has a mark. */
function Month({ c, month }) {
  const [y, m] = month.split('-').map(Number), days = new Date(Date.UTC(y, m, 0)).getUTCDate(),
    first = (new Date(Date.UTC(y, m - 1, 1)).getUTCDay() + 6) % 7
  const whole = (d) => c.dates?.includes(`${month}-${pad(d)}`) || c.dates?.includes(`${pad(m)}-${pad(d)}`) ||
    c.weekdays?.includes(week[(first + d - 1) % 7])
  const part = (d) => c.daily?.length || c.windows?.some((w) => w.from.slice(0, 10) <= `${month}-${pad(d)}` &&
    w.to.slice(0, 10) >= `${month}-${pad(d)}`)
  return html`<div class="month big" role="img"
    aria-label=${`Days in ${monthName(month)} without any occurrence: ${Array.from({ length: days }, (_, i) =>
    i + 1).filter(whole).join(', ') || 'none'}`}><div class="days" aria-hidden="true">
    ${week.map((w) => html`<i class="blank">${w[0].toUpperCase()}</i>`)}
    ${Array.from({ length: first }, () => html`<i class="blank"></i>`)}
    ${Array.from({ length: days }, (_, i) => html`<i class=${whole(i + 1) ? 'out' : part(i + 1) ? 'part' : ''}>${i + 1}
      </i>`)}</div></div>`
}

const words = (s) => s.split(/[\s,]+/).filter(Boolean)
function EditCalendar({ c, close }) {
  const [f, setF] = useState({ name: c.name ?? '', timezone: c.timezone ?? 'UTC', dates: (c.dates ?? []).join(' '),
    weekdays: (c.weekdays ?? []).join(' '), daily: (c.daily ?? []).join(' ') })
  const [error, setError] = useState(null)
  const save = async () => {
    try {
      await send('PUT', `/calendars/${encodeURIComponent(f.name)}`, { body: { timezone: f.timezone,
        dates: words(f.dates), weekdays: words(f.weekdays), daily: words(f.daily), windows: c.windows ?? [] },
        params: c.namespace ? { namespace: c.namespace } : {} })
      close()
    } catch (e) { setError(e) }
  }
  const field = (k, label, hint) => html`<div class="field"><label for=${'c-' + k}>${label}</label>
    <input id=${'c-' + k} class="input" disabled=${k === 'name' && !!c.name} value=${f[k]}
    aria-invalid=${!!error?.field?.startsWith(k)} onInput=${(e) => setF({ ...f, [k]: e.target.value })}/>
    <span class="hint">${hint}</span></div>`
  return html`<${Dialog} title=${c.name ? `Edit ${c.name}` : 'New calendar'} onClose=${close}
    footer=${html`<button class="button" onClick=${close}>Cancel</button>
    <${Act} className="primary" disabled=${!f.name} onClick=${save}>Save<//>`}>
    <div class="form">${field('name', 'Name', '')}${field('timezone', 'Zone', 'such as Europe/Berlin')}
      ${field('dates', 'Dates', '2026-12-25, or 12-25 for every year')}${field('weekdays', 'Weekdays', 'sat sun')}
      ${field('daily', 'Hours of every day', '22:00-06:00')}</div>
    ${error && html`<p class="s-failed small" role="alert">${error.detail} ${error.remedy}</p>`}<//>`
}
