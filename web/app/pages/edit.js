import { html, useEffect, useMemo, useState } from '../ui.js'
import { get, newKey, parse, Problem, send, who } from '../api.js'
import { useData } from '../data.js'
import { go, namespace, to, toJob } from '../router.js'
import { clock, duration, localZone, now, second } from '../time.js'
import { Act, Dialog, Load, Panel, Rich, Segments, Title, toast, useSettled, useUnsaved } from '../parts/bits.js'
import { changes, Conflict, definition, Diff } from '../parts/definition.js'
import { Icon } from '../parts/icons.js'

const fresh = { type: 'http', schedule: '*/5 * * * *', timezone: 'UTC', payload: {} }
const quick = [['every minute', '* * * * *'], ['every 5 minutes', '*/5 * * * *'], ['hourly, spread', 'H * * * *'],
  ['daily at 02:30', '30 2 * * *'], ['weekdays at 09:00', '0 9 * * 1-5'], ['last day of the month', '0 0 L * *'],
  ['every 30 s', '@every 30s'], ['by hand', '@manual']]
const zones = Intl.supportedValuesOf?.('timeZone') ?? []

export default function Edit({ args: [ref] }) {
  if (ref === undefined) return html`<${Form} base=${null} start=${{ ...fresh,
    ...(namespace() && namespace() !== '*' ? { namespace: namespace() } : {}) }}/>`
  return html`<${Existing} refOf=${ref}/>`
}

function Existing({ refOf }) {
  // Once: what is being edited does not change under the hands of who edits it.
  const found = useData((abort) => get('/jobs/' + encodeURIComponent(refOf), {}, { abort }), [refOf])
  return html`<${Load} of=${found} bones=${8}>${(job) => html`<${Form} key=${job.version} base=${job}
    start=${definition(job)}/>`}<//>`
}

const cap = (text) => text && text[0].toUpperCase() + text.slice(1)
/** What is wrong, and what to write instead, as two sentences. */
const Wrong = ({ of, calm }) => html`<span class=${'wrong' + (calm ? ' calm' : '')}>${cap(of.detail)}${of.remedy &&
  html`. <${Rich} text=${cap(of.remedy)}/>`}.</span>`
/** The field that an error is about. */
const fieldOf = (e) => { const f = e?.field ?? ''
  return document.getElementById('f-' + f.replace('.', '-')) ?? document.getElementById(f.replace('payload.', 'p-')) }

/** Text where JSON belongs. Nothing that has it can be sent. */
class Unread {
  constructor(o) { Object.assign(this, o) }
  toJSON() { throw new Problem(this) }
}
/** Without what was left empty in the form; in a body or an environment empty says something. */
const sent = (v) => parse(JSON.stringify({ ...v, timezone: v.timezone || undefined }))
const typedIn = (text) => text === '' ? undefined : text

function Form({ base, start }) {
  const [spec, setSpec] = useState(start), [mode, setMode] = useState('form'), [raw, setRaw] = useState(''),
    [bad, setBad] = useState(null), [unread, setUnread] = useState(null)
  const [error, setError] = useState(null), [review, setReview] = useState(null),
    [conflict, setConflict] = useState(null), [version, setVersion] = useState(base?.version)
  const [mine] = useState(newKey) // one key for one job, however often Create is pressed
  const [origin, setOrigin] = useState(start)
  const [kept] = useState({}) // the payloads of the other types
  useUnsaved(!!bad || changes(origin, spec).length > 0)
  // Not by the attribute: the view has the focus by then, and the browser leaves it there.
  useEffect(() => { if (!base) document.getElementById('f-name')?.focus() }, [])
  // An error that is being mended keeps its place, unseen: what is below it must not move under the pointer.
  const [calm, setCalm] = useState(false)
  const set = (patch) => { setSpec({ ...spec, ...patch }); setCalm(true) }
  const told = error && !calm ? error : null, about = (e, f) => e &&
    (e.field === f || e.field?.startsWith(f + '.'))
  const invalid = (f) => !!about(told ?? unread, f)
  const wrong = (f) => about(told ?? unread, f) ? html`<${Wrong} of=${told ?? unread}/>` :
    about(error, f) && html`<${Wrong} of=${error} calm/>`
  useEffect(() => {
    const e = fieldOf(error)
    setCalm(false)
    e?.closest('details')?.setAttribute('open', '')
    e?.focus()
    e?.scrollIntoView({ block: 'center' })
  }, [error])
  const switchTo = (m) => {
    if (bad || m === mode) return
    setError(null)
    try {
      if (m === 'json') setRaw(JSON.stringify(sent(spec), null, 2))
      setMode(m)
    } catch (e) { setError(e) }
  }
  const typed = (text) => {
    setRaw(text)
    try { setSpec(parse(text)); setBad(null) } catch (e) { setBad(e.message) }
  }
  const save = async () => {
    setError(null)
    try {
      const body = sent(spec)
      if (!base) {
        const job = await send('POST', '/jobs', { body, key: mine })
        toast(`${job.name || job.job_id} was created.`)
        go(toJob(job), { saved: true })
        return
      }
      const path = '/jobs/' + base.job_id
      const dry = await send('PUT', path, { body, params: { dry_run: true, namespace: base.namespace },
        ifMatch: `"${version}"` })
      setReview({ body, dry, list: changes(origin, body) })
    } catch (e) { failed(e) }
  }
  const failed = async (e) => {
    setReview(null)
    if (e.code === 'version_conflict' || e.status === 412) {
      const theirs = await get('/jobs/' + base.job_id, { namespace: base.namespace })
      setConflict(theirs)
    } else setError(e)
  }
  const put = async () => {
    try {
      const job = await send('PUT', '/jobs/' + base.job_id, { body: review.body, params: { namespace: base.namespace },
        ifMatch: `"${version}"` })
      toast('Saved.')
      go(toJob(job), { saved: true })
    } catch (e) { failed(e) }
  }
  const name = base ? base.name || base.job_id : 'New job'
  // A key is the name of a field, or of one in it: retry.base.
  const labeled = (k, label, input) => { const [at, of] = k.split('.'), id = 'f-' + k.replace('.', '-')
    return html`<div class="field"><label for=${id}>${label}</label>${input(id, of ? spec[at]?.[of] : spec[at], (v) =>
      set({ [at]: of ? { ...spec[at], [of]: v } : v }))}${wrong(k)}</div>` }
  const field = (k, label, props = {}, hint) => labeled(k, label, (id, v, put) => html`<input id=${id} class="input"
    value=${v ?? ''} aria-invalid=${invalid(k)} onInput=${({ target: { value } }) => put(props.type === 'number' &&
    value ? Number(value) : typedIn(value))} ...${props}/>${hint && html`<span class="hint">${hint}</span>`}`)
  const choice = (k, label, usual, options) => labeled(k, label, (id, v, put) => html`<select id=${id} class="select"
    value=${v === usual ? '' : v ?? ''} onChange=${(e) => put(e.target.value || (base ? usual : undefined))}>
    ${options.map(([v, t]) => html`<option value=${v}>${t}</option>`)}</select>`)
  return html`<${Title} title=${base ? `Edit ${name}` : name} crumbs=${base ?
    [['Jobs', to('/jobs')], [name, toJob(base)]] : [['Jobs', to('/jobs')]]}
    actions=${html`<${Segments} label="Form" value=${mode} options=${[['form', 'Form'], ['json', 'JSON']]}
    onChange=${switchTo}/>`}/>
    <form class="cols" onSubmit=${(e) => e.preventDefault()}><div class="c7"><${Panel}>
      <div class="body form" key=${version}>
      ${mode === 'json' ? html`<div class="field"><label for="f-raw">Definition</label>
        <textarea id="f-raw" class="textarea" rows="26" spellcheck=${false} value=${raw} aria-invalid=${!!bad}
        onInput=${(e) => typed(e.target.value)}></textarea>${bad && html`<span class="wrong" role="alert">${bad}
        </span>`}</div>` : html`
      <fieldset><div class="pair">${field('name', 'Name', { autocomplete: 'off', spellcheck: false },
        'letters, digits, - _ . @ +')}
        ${!base && !who.value?.namespace && field('namespace', 'Namespace',
          { placeholder: 'default', autocomplete: 'off' })}</div></fieldset>
      <fieldset><legend>When</legend><div class="field"><label for="f-schedule">Schedule</label>
        <input id="f-schedule" class="input mono" spellcheck=${false} autocomplete="off" value=${spec.schedule}
        aria-invalid=${invalid('schedule')} onInput=${(e) => set({ schedule: e.target.value })}/>
          <div class="quick">${quick.map(([t, s]) => html`<button type="button" onClick=${() => set({ schedule: s })}>
            ${t}</button>`)}</div>${wrong('schedule')}</div>
        <div class="pair"><div class="field"><label for="f-timezone">Zone</label>
          <input id="f-timezone" class="input" list="zones" value=${spec.timezone ?? 'UTC'}
          aria-invalid=${invalid('timezone')} onInput=${(e) => set({ timezone: e.target.value })}/><datalist id="zones">
          ${zones.map((z) => html`<option value=${z}></option>`)}</datalist>${wrong('timezone')}</div>
          ${field('jitter', 'Jitter', { placeholder: 'none' }, 'such as 90s')}</div></fieldset>
      <fieldset><legend>What</legend><${Segments} label="Type" value=${spec.type}
        options=${[['http', 'HTTP'], ['shell', 'Shell'], ['queue', 'Queue'], ['message', 'Message']]}
        onChange=${(type) => { kept[spec.type] = spec.payload; set({ type, payload: kept[type] ?? {} }) }}/>
        <${Payload} key=${spec.type} type=${spec.type} value=${spec.payload ?? {}}
          onChange=${(payload) => set({ payload })}
          wrong=${(k) => wrong('payload' + k)} invalid=${(k) => invalid('payload' + k)}/>${wrong('type')}</fieldset>
      <details><summary>Limits, retries, overlap</summary><fieldset><div class="pair">
        ${choice('overlap', 'While an earlier run is open', 'skip', [['', 'skip (default)'], ['queue', 'queue'],
        ['allow', 'allow'], ['replace', 'replace']])}
          ${choice('delivery', 'Delivery', 'at_least_once', [['', 'at least once (default)'],
          ['at_most_once', 'at most once']])}
            ${choice('priority', 'Priority', 'normal', [['', 'normal (default)'], ['critical', 'critical'],
            ['high', 'high'],
            ['low', 'low']])}
          ${field('timeout', 'Timeout', { placeholder: '5m' })}${field('deadline', 'Deadline', { placeholder: 'none' },
            'expires if not started within this time')}${field('concurrency', 'Most runs at once',
            { type: 'number', min: 0, placeholder: 'no limit' })}${field('max_runs', 'Ends after runs',
            { type: 'number', min: 0, placeholder: 'no limit' })}</div>
        <div class="pair">${field('retry.max_retries', 'Retries', { type: 'number', min: 0, placeholder: '3' })}
          ${field('retry.base', 'First delay', { placeholder: '1s' })}
          ${choice('missed.policy', 'After an outage', 'run_once', [['', 'run once (default)'], ['skip', 'skip'],
          ['run_all', 'run all']])}</div></fieldset></details>
      <details><summary>Tags, calendars, workers</summary><fieldset><${Pairs} label="Tags" value=${spec.tags}
        onChange=${(tags) => set({ tags })} hint="name=value, one on each line: team=billing"/>
        <${Pairs} label="Tags that a worker must have" value=${spec.workers} onChange=${(workers) => set({ workers })}
        hint="name=value, one on each line: region=eu"/>
        <div class="field"><label for="f-calendars">Blackout calendars</label>
          <input id="f-calendars" class="input" value=${(spec.calendars ?? []).join(' ')}
          onInput=${(e) => set({ calendars: e.target.value.split(/[\s,]+/).filter(Boolean) })}/>
          <span class="hint">names, with a space between them</span>${wrong('calendars')}</div>
        <div class="pair">${field('start_at', 'Not before', { placeholder: '2026-12-01T00:00:00Z' })}
          ${field('end_at', 'Not after', { placeholder: '2027-12-01T00:00:00Z' })}</div></fieldset></details>`}
      ${error && html`<div class=${'banner bad' + (calm ? ' calm' : '')} role="alert"><${Icon} name="cross"/><div
        class="grow"><p>
        <strong>${error.field ? `${fieldOf(error)?.labels?.[0]?.innerText ?? error.field}: ` : ''}${error.detail}
        </strong></p>${error.remedy && html`<p><${Rich} text=${cap(error.remedy)}/></p>`}</div></div>`}
      <div class="row"><${Act} type="submit" className="primary" disabled=${!!bad} onClick=${(e) => {
        e.preventDefault()
        return save() }}>
        ${base ? 'Review and save' : 'Create'}<//><a class="button" href=${base ? toJob(base) : to('/jobs')}>Cancel</a>
        </div></div><//></div>
    <div class="c5"><${Preview} spec=${spec} job=${base} tell=${setUnread}/></div></form>
    ${review && html`<${Review} review=${review} job=${base} close=${() => setReview(null)} put=${put}/>`}
    ${conflict && html`<${Conflict} base=${origin} theirs=${definition(conflict)} mine=${sent(spec)}
      close=${() => setConflict(null)} take=${(merged) => { setOrigin(definition(conflict));
      setVersion(conflict.version); setSpec(merged); setRaw(JSON.stringify(merged, null, 2)); setConflict(null);
      toast('Merged. Review and save again.') }}/>`}`
}

function Pairs({ label, value, onChange, hint }) {
  const [text, setText] = useState(Object.entries(value ?? {}).map(([k, v]) => `${k}=${v}`).join('\n'))
  const id = 'p-' + label.replaceAll(' ', '-')
  const put = (t) => { setText(t); onChange(Object.fromEntries(t.split('\n').map((l) =>
    l.trim()).filter(Boolean).map((l) => { const i = l.indexOf('='); return i < 0 ? [l, ''] :
    [l.slice(0, i), l.slice(i + 1)] }))) }
  return html`<div class="field"><label for=${id}>${label}</label><textarea id=${id} class="textarea" rows="2"
    style=${{ minHeight: '56px' }} spellcheck=${false} value=${text} onInput=${(e) => put(e.target.value)}></textarea>
    <span class="hint">${hint}</span></div>`
}

const asked = (spec, job) => ({ schedule: spec.schedule, timezone: spec.timezone || undefined, dst_gap: spec.dst_gap,
  dst_overlap: spec.dst_overlap, start_at: spec.start_at, end_at: spec.end_at, calendars: spec.calendars?.length ?
  spec.calendars : undefined, jitter: spec.jitter, job_id: job?.job_id })

/** What the schedule means, while it is typed. */
function Preview({ spec, job, tell }) {
  const question = useSettled(JSON.stringify(asked(spec, job)), 300)
  const space = spec.namespace ? { namespace: spec.namespace } : {}
  const next = useData((abort) => send('POST', '/schedule:preview', { body: { ...JSON.parse(question), count: 400 },
    params: space, abort }), [question], { every: 20000 })
  useEffect(() => tell(next.error), [next.error])
  const p = next.data
  second.value
  return html`<div class="preview"><${Panel} title="Preview">${next.error ?
    html`<div class="body" role="status"><p class="s-failed">${fieldOf(next.error) ?
    'There are no times until this is mended.' : cap(next.error.detail)}</p></div>` : p &&
    html`<div class=${'body stack' + (next.dim ? ' dim' : '')} role="status">
      <p><strong>${p.description}</strong></p>
      ${p.by_job && (/^@every/i.test(p.schedule) ? html`<p>The first run is at most ${duration(apart(p.times))} after
        its creation. When exactly depends on the id that the job gets then: jobs are spread over time.</p>` :
        html`<p>H depends on the id that the job gets at its creation: jobs are spread over time. For example, with one
        value of H:</p>`)}
      ${p.times.length ? !(p.by_job && /^@every/i.test(p.schedule)) && html`<${Times} zone=${p.timezone}
          times=${p.times.filter((t) => Date.parse(t.utc) > now()).slice(0, p.by_job ? 3 : 10)}/>` :
        html`<p class="muted small">It has no occurrences of its own: run it by hand.</p>`}
      ${!job && spec.jitter && html`<p class="small">Jitter delays each of them by up to ${spec.jitter}.</p>`}
        </div>`}<//>
    ${!next.error && !p?.by_job && p?.times.length > 0 && html`<${Panel} title="A year" className="after">
      <div class="body">      <${Year} times=${p.times}/></div><//>`}</div>`
}

const apart = (times) => Date.parse(times[1]?.utc ?? times[0]?.utc) - Date.parse(times[0]?.utc)

/** In three zones; those that daylight saving or a calendar touches say so. */
const Times = ({ times, zone }) => {
  const seconds = times.some((t) => !/T\d\d:\d\d:00/.test(t.at)) // where they say something
  return html`<div class="times" tabindex="0"><table><thead><tr><th scope="col">${zone}
  </th>${localZone !== zone && html`<th scope="col">${localZone} (here)</th>`}
  ${zone !== 'UTC' && localZone !== 'UTC' && html`<th scope="col">UTC</th>`}</tr></thead>
  <tbody>${times.map((t) => html`<tr class=${t.fires === false ? 'off' : ''}><td>${wall(t.at, seconds)}</td>
    ${localZone !== zone && html`<td class="muted">${other(t, localZone, seconds)}</td>`}
    ${zone !== 'UTC' && localZone !== 'UTC' && html`<td class="muted">${other(t, 'UTC', seconds)}</td>`}</tr>
    ${t.note && html`<tr class="note"><td colspan="3">${t.note}</td></tr>`}`)}</tbody></table></div>`
}

const day = (at, zone) => clock(at, zone).split(',')[0]
// The same instant elsewhere: with its day where that is another one.
const other = (t, zone, seconds) => clock(Date.parse(t.utc), zone, { seconds,
  date: day(Date.parse(t.utc), zone) !== day(Date.parse(t.at.slice(0, 10)), 'UTC') })

// The node says the wall clock with its offset; the browser's own zone data is not asked.
const wall = (at, seconds) => {
  const [, d, h, off] = /^(\d{4}-\d\d-\d\d)T([\d:]+)(?:\.\d+)?(Z|[+-]\d\d:\d\d)$/.exec(at) ??
    [null, at, '', '']
  return html`${day(Date.parse(d), 'UTC')}, ${seconds ? h : h.slice(0, 5)} <span class="muted">
    ${off === 'Z' ? '' : off}</span>`
}

function Review({ review, job, close, put }) {
  const { dry, list, body } = review, before = dry?.next_before ?? [], after = dry?.next_after ?? []
  const at = (list, i, zone) => list[i] ? clock(Date.parse(list[i]), zone) : i === list.length && 'none'
  return html`<${Dialog} wide title=${`Save ${job.name || job.job_id}?`} onClose=${close} cancel="Back"
    footer=${html`<${Act} className="primary" disabled=${!list.length} onClick=${put}>Save<//>`}>
    ${list.length ? html`<${Diff} list=${list}/>` : html`<p>Nothing was changed.</p>`}
    ${String(before) !== String(after) ? html`<div class="times"><table><thead><tr><th scope="col">Next before</th>
      <th scope="col">Next after</th></tr></thead><tbody>
      ${(after.length > before.length ? after : before).map((_, i) => html`<tr>
      <td>${at(before, i, job.timezone)}</td><td class=${!after[i] || before.includes(after[i]) ? '' : 's-succeeded'}>
      ${at(after, i, body.timezone ?? 'UTC')}</td></tr>`)}</tbody></table></div>` : before.length > 0 &&
      html`<p class="small muted">Its next times stay the same.</p>`}
    ${[dry?.dropped?.text, ...dry?.warnings ?? []].filter(Boolean).map((w) =>
      html`<p class="small s-missed">${w}</p>`)}<//>`
}

// The payload of each type of job, as a form. What the form does not show stays as it is.
const methods = ['', 'GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD']

function Payload({ type, value, onChange, wrong: of, invalid }) {
  const set = (patch) => onChange({ ...value, ...patch })
  const wrong = (k) => of('.' + k)
  const text = (k, label, props = {}) => html`<div class="field"><label for=${'p-' + k}>${label}</label>
    <input id=${'p-' + k} class="input" spellcheck=${false} autocomplete="off" value=${value[k] ?? ''}
    aria-invalid=${invalid('.' + k)} onInput=${(e) => set({ [k]: typedIn(e.target.value) })} ...${props}/>
    ${wrong(k)}</div>`
  switch (type) {
    case 'http': return html`<div class="pair called">
      <div class="field"><label for="p-method">Method</label><select id="p-method" class="select"
      value=${value.method ?? ''} onChange=${(e) => set({ method: typedIn(e.target.value) })}>
      ${methods.map((m) => html`<option value=${m}>${m || (value.body == null ? 'GET' : 'POST') + ' (auto)'}
      </option>`)}</select></div>
      ${text('url', 'URL', { type: 'url', placeholder: 'https://example.com/hook' })}</div>
      <${JSONField} key="headers" id="headers" label="Headers" value=${value.headers}
        onChange=${(headers) => set({ headers })} hint='a JSON object: {"X-Team": "billing"}'/>
        <${JSONField} key="body" id="body" label="Body" value=${value.body} onChange=${(body) => set({ body })}
        hint="JSON, or text that is sent as it is" loose/>`
    case 'shell': return html`<div class="field"><label for="p-command">Command</label>
      <textarea id="p-command" class="textarea" rows="4" spellcheck=${false} value=${value.command ?? ''}
      placeholder="echo hello" onInput=${(e) => set({ command: typedIn(e.target.value) })}></textarea>
      <span class="hint">A script for /bin/sh. CARILLON_RUN has the run's id.</span>${wrong('command')}</div>
      <${JSONField} key="env" id="env" label="Environment" value=${value.env} onChange=${(env) => set({ env })}
        hint='a JSON object: {"LANG": "C"}'/>`
    case 'queue': return html`${text('queue', 'Queue', { placeholder: 'mail' })}
      <${JSONField} key="data" id="data" label="Data" value=${value.data} onChange=${(data) => set({ data })}
      hint="any JSON, handed to the worker"/>`
    default: return html`${text('broker', 'Broker', { placeholder: 'nats://host:4222, or a name the workers know' })}
      <div class="pair">${text('subject', 'Subject (NATS)')}${text('topic', 'Topic (Kafka)')}
      ${text('key', 'Key (Kafka)')}</div>
      <${JSONField} key="data" id="data" label="Data" value=${value.data} onChange=${(data) => set({ data })}
        hint="JSON, or text that is sent as it is" loose/>`
  }
}

/** JSON while it is typed. Loose: what does not look like JSON is text. */
function JSONField({ id, label, value, onChange, hint, loose }) {
  const read = (text) => {
    if (!text.trim()) return undefined
    try { return parse(text) } catch (e) {
      return loose && !/^\s*[[{"]/.test(text) ? text : new Unread({ field: 'payload.' + id, text,
        detail: 'this is not valid JSON: ' + e.message.split(/, ("|\.\.\.)/)[0],
        remedy: loose ? 'Correct it, or put text between quotes' : '' })
    }
  }
  const bad = value instanceof Unread
  const [text, setText] = useState(bad ? value.text : value === undefined ? '' : loose && typeof value === 'string' &&
    read(value) === value ? value : JSON.stringify(value, null, 2))
  return html`<div class="field"><label for=${'p-' + id}>${label}</label>
    <textarea id=${'p-' + id} class="textarea" rows="2" style=${{ minHeight: '56px' }} spellcheck=${false} value=${text}
    aria-invalid=${bad} onInput=${(e) => { setText(e.target.value); onChange(read(e.target.value)) }}></textarea>
    ${bad ? html`<${Wrong} of=${value}/>` : html`<span class="hint">${hint}</span>`}</div>`
}

// Twelve months at a glance: on which days it fires, and where daylight saving or a calendar changes something.
const pad = (n) => String(n).padStart(2, '0')

function Year({ times }) {
  const { months, dense, until } = useMemo(() => {
    const days = new Map()
    for (const t of times) {
      const d = t.at.slice(0, 10), had = days.get(d) ?? { fires: false, out: false, dst: false, n: 0 }
      had.n++
      if (t.fires === false) had.out = true
      else had.fires = true
      if (t.note && /daylight|clock|gap|twice|skips|shift/i.test(t.note)) { had.dst = true; had.note = t.note }
      days.set(d, had)
    }
    const first = times[0].at.slice(0, 7).split('-').map(Number)
    const all = Array.from({ length: 12 }, (_, i) => { const d = new Date(Date.UTC(first[0], first[1] - 1 + i, 1));
      return { key: d.toISOString().slice(0, 7), days, begin: (d.getUTCDay() + 6) % 7,
      length: new Date(Date.UTC(d.getUTCFullYear(), d.getUTCMonth() + 1, 0)).getUTCDate(),
      name: new Intl.DateTimeFormat('en-GB', { month: 'short', year: 'numeric', timeZone: 'UTC' }).format(d) } })
    const until = times.at(-1).at.slice(0, 10)
    return { months: all.filter((m) => m.key <= until.slice(0, 7)), dense: times.length >= 400, until }
  }, [times])
  if (dense && months.length < 3) return html`<p
    class="muted small">It fires too often to draw a year: the last of the first ${times.length} times is
    ${' '}${wall(times.at(-1).at)}</p>`
  return html`<div class="year">${months.map((m) => html`<div class="month" key=${m.key}><h3>${m.name}</h3>
    <div class="days">${Array.from({ length: m.begin }, () => html`<i class="blank"></i>`)}
    ${Array.from({ length: m.length }, (_, i) => { const key = `${m.key}-${pad(i + 1)}`, d = m.days.get(key)
      return html`<i class=${!d ? '' : d.dst ? 'dst' : d.fires ? 'fires' : 'out'}
        title=${d ? `${key}: ${d.n} ${d.n === 1 ? 'time' : 'times'}${d.note ? ', ' + d.note : d.out ?
        ', a calendar forbids it' : ''}` : key}></i>` })}</div></div>`)}</div>
    <p class="legend-line tiny muted"><span><i class="key fires"></i>fires</span><span><i class="key dst">
      </i>daylight saving changes it</span><span><i class="key out"></i>a calendar forbids it</span>
      ${dense && until.startsWith(months.at(-1).key) ? ` · until ${until}` : ''}</p>`
}
