import { html, signal, useEffect, useRef, useState } from '../ui.js'
import { get, newKey, sendLines } from '../api.js'
import { collect, useData } from '../data.js'
import { move } from '../keys.js'
import { namespace, place, setQuery, to, toJob } from '../router.js'
import { count, Due } from '../time.js'
import { Act, ActLink, ask, attempt, Dialog, Load, Panel, Table, Title, toast, useSettled } from '../parts/bits.js'
import { Icon, Status } from '../parts/icons.js'
import { Spark } from '../parts/strip.js'

const size = 100
const statuses = ['scheduled', 'paused', 'completed', 'failed', 'quarantined'],
  types = ['http', 'shell', 'message', 'queue']

export default function Jobs() {
  const q = place.value.query
  const [text, setText] = useState(q.get('q') ?? '')
  const settled = useSettled(text)
  useEffect(() => { if (settled !== (q.get('q') ?? '')) setQuery({ q: settled, cursor: '' }) }, [settled])
  useEffect(() => { setText(q.get('q') ?? '') }, [q.get('q')])
  const filter = { q: q.get('q') ?? '', status: q.get('status') ?? '', type: q.get('type') ?? '', tag: q.get('tag') ?
    q.get('tag').split(',') : [], failing: q.get('failing') ?? '' }
  const [progress, setProgress] = useState(null)
  const list = useData((abort) => {
    setProgress(null)
    return collect((cursor, limit) => get('/jobs', { ...filter, cursor, limit }, { abort }), 'jobs', size,
      q.get('cursor') ?? '', setProgress)
  }, [q.toString()], { every: 5000, topics: ['runs'] })
  // Enter and Down go on to what was found, once it is there.
  const wait = useRef(false)
  const down = (e) => {
    if (e.key !== 'Enter' && e.key !== 'ArrowDown') return
    e.preventDefault()
    if (text === filter.q) move(1)
    else { wait.current = true; setQuery({ q: text, cursor: '' }) }
  }
  useEffect(() => { if (wait.current) { wait.current = false; move(1) } }, [list.data])
  const [chosen, setChosen] = useState(new Map())
  const [all, setAll] = useState(false)
  useEffect(() => { setChosen(new Map()); setAll(false) }, [q.toString()])
  const choose = (j) => { const next = new Map(chosen); next.has(j.job_id) ? next.delete(j.job_id) :
    next.set(j.job_id, j); setChosen(next); setAll(false) }
  const filtered = filter.q || filter.status || filter.type || filter.tag.length || filter.failing
  const rows = list.data?.rows ?? []
  const every = rows.length > 0 && rows.every((j) => chosen.has(j.job_id))
  const cols = [
    [html`<input type="checkbox" aria-label="Select all of this page" checked=${every}
      onChange=${() => { setAll(false); setChosen(every ? new Map() : new Map(rows.map((j) => [j.job_id, j]))) }}/>`,
      (j) => html`<input type="checkbox" aria-label=${`Select ${j.name || j.job_id}`} checked=${chosen.has(j.job_id)}
        onChange=${() => choose(j)}/>`, '18px'],
    ['Job', (j) => html`<a class="main" href=${toJob(j)}>${j.name || j.job_id}</a>
      ${namespace() === '*' && html`<span class="sub">${j.namespace}</span>`}`, 'minmax(140px, 1.6fr)', 'lead'],
    ['Schedule', (j) => html`<${Schedule} job=${j}/>`, 'minmax(130px, 1.5fr)', 'wide'],
    ['State', (j) => html`<${Status} of=${stateOf(j)}/>`, '112px'],
    ['Next', (j) => html`<${Due} at=${j.next_run_at} zone=${j.timezone}/>`, '92px'],
    ['Last outcomes', (j) => html`<${Outcomes} job=${j}/>`, '138px'],
    ['Type', (j) => html`<span class="muted">${j.type}</span>`, '64px', 'minor'],
    ['Tags', (j) => Object.entries(j.tags ?? {}).map(([k, v]) => html`<a class="tag"
      href=${to('/jobs', { tag: `${k}=${v}` })}>${k}=${v}</a> `), 'minmax(90px, 1fr)', 'minor'],
  ]
  return html`<${Title} title="Jobs" actions=${html`<${ActLink} className="primary" href=${to('/jobs/new')}>
    <${Icon} name="plus"/>New job<//>`}/>
    <div class="toolbar" role="search"><input class="input search" type="search"
      placeholder="Name contains…" aria-label="Name contains" value=${text} onInput=${(e) => setText(e.target.value)}
      onKeyDown=${down}/>
      <${Pick} label="State" value=${filter.status} options=${statuses}
        onChange=${(v) => setQuery({ status: v, cursor: '' }, { push: true })}/>
      <${Pick} label="Type" value=${filter.type} options=${types} onChange=${(v) =>
        setQuery({ type: v, cursor: '' }, { push: true })}/>
      <input class="input" aria-label="Tags" placeholder="tag=value" size="14" value=${filter.tag.join(',')}
        onChange=${(e) => setQuery({ tag: e.target.value.trim(), cursor: '' }, { push: true })}/>
      <button class="button" aria-pressed=${filter.failing === 'true'}
        onClick=${() => setQuery({ failing: filter.failing ? '' : 'true', cursor: '' },
        { push: true })}>Failing</button>
      ${filtered && html`<a class="button quiet" href=${to('/jobs')}>Clear</a>`}</div>
    <${Begun} changed=${list.reload}/>
    <${Panel}><${Load} of=${list} bones=${8} empty=${{ when: (d) => !d.rows.length && !d.next, icon: 'jobs',
      title: filtered ? 'No job matches' : namespace() ? `No jobs in the namespace ${namespace()}` : 'No jobs yet',
        text: filtered ? 'Remove part of the filter, or look in another namespace.' :
          'A job says what to do and when. Create one here, or from a terminal:',
        command: filtered ? null : `carillon submit --name hello --schedule '@every 10s' --shell 'echo hello'` }}>
      ${(d) => html`<${Table} label="Jobs" cols=${cols} rows=${d.rows} id=${(j) => j.job_id}
        selected=${(j) => all || chosen.has(j.job_id)}/>
        <${Pager} page=${d} progress=${progress}/>`}<//><//>
    ${(chosen.size > 0 || all) && html`<${Bulk} chosen=${[...chosen.values()]} all=${all} setAll=${setAll}
      filter=${filter} page=${list.data} clear=${() => { setChosen(new Map()); setAll(false); list.reload() }}/>`}`
}

/** Scheduled is all that the API says of a job that dies each time, and of one that nothing starts by itself. */
const stateOf = (j) => j.status !== 'scheduled' ? j.status : j.failing || /dead|lost|expired/.test(j.last_run_status) ?
  'failing' : j.schedule === '@manual' ? 'manual' : j.status

export const Pick = ({ label, value, options, onChange }) => html`<select class="select" aria-label=${label}
  value=${value} onChange=${(e) => onChange(e.target.value)}>
  <option value="">${label}: any</option>${options.map((o) => html`<option value=${o}>${o}</option>`)}</select>`

export function Pager({ page, progress }) {
  const q = place.value.query, part = page.next || q.get('cursor'), n = page.rows.length
  const of = (n) => page.total ? ' of ' + count(n) : ''
  return html`<div class="more">${q.get('cursor') && html`<button class="button"
    onClick=${() => setQuery({ cursor: '' }, { push: true })}>First page</button>`}
    <span>${count(n)}${part ? ' on this page' : page.searched ? of(page.scanned) + ' match' : ' in all'}${
      page.next && page.searched && `, ${count(page.scanned)}${of(page.total)} searched`}</span>
    ${page.next && html`<button class="button" onClick=${() => setQuery({ cursor: page.next }, { push: true })}>
      ${n ? 'Next page' : 'Keep searching'}</button>`}</div>`
}

/** The schedule in English where the list says it, with the expression beside it. */
export const Schedule = ({ job }) => job.description
  ? html`<span title=${job.schedule}>${job.description}</span><span class="sub mono">${job.schedule}
    ${job.timezone !== 'UTC' ? ' ' + job.timezone : ''}</span>`
  : html`<span class="mono">${job.schedule}</span>${job.timezone !== 'UTC' &&
    html`<span class="sub">${job.timezone}</span>`}`

// The last outcomes are asked for when a row is seen, a few at a time, and kept for half a minute.
const known = new Map()
let open = 0
const line = []
function pump() {
  while (open < 3 && line.length) {
    const { job, sig } = line.shift()
    open++
    get(`/jobs/${job.job_id}/stats`, { namespace: job.namespace }).then((d) => { sig.value = d.last },
      () => { sig.value = [] }).finally(() => { open--; pump() })
  }
}
function Outcomes({ job }) {
  const ref = useRef(null)
  let k = known.get(job.job_id)
  if (!k) { known.set(job.job_id, k = { sig: signal(null), at: 0 });
    if (known.size > 1000) known.delete(known.keys().next().value) }
  useEffect(() => {
    const seen = new IntersectionObserver(([e]) => {
      if (!e.isIntersecting || Date.now() - k.at < 30e3) return
      k.at = Date.now()
      line.push({ job, sig: k.sig })
      pump()
    })
    seen.observe(ref.current)
    return () => seen.disconnect()
  }, [job.job_id])
  const last = k.sig.value?.length ? k.sig.value : job.last_run_status && [{ status: job.last_run_status }]
  return html`<span ref=${ref}>${last ? html`<${Spark} last=${last}/>` :
    job.open_runs ? html`<${Status} of="running"/>` :
    html`<span class="muted">never ran</span>`}</span>`
}

const key = 'carillon.act'
function read() {
  try { return JSON.parse(sessionStorage.getItem(key)) } catch { return null }
}
const begun = signal(read())
function put(state) {
  begun.value = state
  try {
    if (!state) sessionStorage.removeItem(key)
    else sessionStorage.setItem(key, JSON.stringify({ ...state, running: false }))
  } catch { /* it is known to this page only then */ }
}

const broken = new Set(['unreachable', 'no_leader', 'not_ready', 'outcome_unknown', 'unavailable'])
let stop = null

async function goOn(changed) {
  const mine = stop = new AbortController()
  for (let tries = 0; ; tries++) {
    const from = begun.value
    put({ ...from, running: true, error: '' })
    let last = null
    try {
      await sendLines('/jobs:act', { ...from.body, expect: from.matched, cursor: from.cursor || undefined }, (l) => {
        if (l.cursor && l.cursor !== begun.value.cursor) tries = 0
        last = l
        put({ ...begun.value, cursor: l.cursor || begun.value.cursor, done: from.done + l.done,
          failed: from.failed + l.failed, said: l.errors?.[0]?.error?.detail ?? begun.value.said })
      }, { key: from.key, params: from.params, abort: mine.signal })
      if (last?.error) throw last.error
      if (last?.finished) break
      throw { code: 'unreachable', detail: 'The answer broke off.' }
    } catch (e) {
      if (mine.signal.aborted) { put({ ...begun.value, running: false }); return }
      if (broken.has(e.code) && tries < 5) {
        await new Promise((r) => setTimeout(r, 300 * 2 ** tries))
        continue
      }
      put({ ...begun.value, running: false, error: e.detail ?? String(e) })
      return
    }
  }
  const { name, done, failed, said } = begun.value
  put(null)
  toast(`${name}: ${count(done)} done${failed ? `, ${count(failed)} failed` : ''}.`, { bad: failed > 0, detail: said })
  changed()
}

/** Asks first: how many there are, and before a delete for that number. */
async function begin(action, name, filter, known, changed) {
  const params = namespace() && namespace() !== '*' ? { namespace: namespace() } : {}, body = { filter, action }
  let matched = known
  if (matched === null && !await attempt(null, () => sendLines('/jobs:act', { ...body, dry_run: true },
    (l) => { matched = l.matched }, { params }))) return
  const yes = await ask({ title: `${name} ${count(matched)} jobs?`, text: action === 'delete' ?
    'The jobs and their open runs are removed. This cannot be undone.' :
    `This is done to each of the ${count(matched)} jobs, one after the other.`, yes: `${name} ${count(matched)}`,
    danger: action === 'delete', type: action === 'delete' ? matched : undefined })
  if (!yes) return
  put({ name, body, params, key: newKey(), matched, done: 0, failed: 0, cursor: '' })
  await goOn(changed)
}

function Begun({ changed }) {
  const b = begun.value
  if (!b) return null
  const far = `${count(b.done)} of ${count(b.matched)}${b.failed ? `, ${count(b.failed)} failed` : ''}`
  if (b.running) return html`<${Dialog} title=${b.name} onClose=${() => stop.abort()}
    cancel="Stop"><p role="status">${far}</p>
    <progress max=${b.matched} value=${b.done + b.failed} aria-label=${b.name}></progress><//>`
  return html`<div class="banner warn"><${Icon} name="bars"/><div class="grow"><p>
    <strong>${b.name} stopped: ${far}.</strong> ${b.error}</p></div>
    <${Act} onClick=${() => goOn(changed)}>Continue<//>
    <button class="button quiet" onClick=${() => put(null)}>Forget</button></div>`
}

const verbs = [['pause', 'Pause'], ['resume', 'Resume'], ['run', 'Run now'], ['delete', 'Delete']]

/** What to do with the jobs that are selected, or with everything that matches. */
function Bulk({ chosen, all, setAll, filter, page, clear }) {
  const tags = Object.fromEntries(filter.tag.map((t) => [t.split('=')[0], t.slice(t.indexOf('=') + 1)]))
  const narrow = { q: filter.q || undefined, status: filter.status || undefined, type: filter.type || undefined,
    tags: filter.tag.length ? tags : undefined, failing: filter.failing === 'true' || undefined }
  const some = Object.values(narrow).some(Boolean)
  const which = all ? some ? narrow : { all: true } : { ids: chosen.map((j) => j.job_id) }
  return html`<div class="bulk" role="region" aria-label="What to do with the selected jobs"><strong>
    ${all ? 'all that match' : `${count(chosen.length)} selected`}</strong>
    ${!all && page?.next && html`<button class="button quiet" onClick=${() =>
      setAll(true)}>Select all that match</button>`}
    ${verbs.map(([v, name]) => html`<${Act} className=${v === 'delete' ? 'danger' : ''}
      not=${all && namespace() === '*' && 'Choose one namespace to act on all that match.'}
      onClick=${() => begin(v, name, which, all ? null : chosen.length, clear)}>${name}<//>`)}
    <button class="button quiet" onClick=${clear}>Clear</button></div>`
}
