import { html, useEffect, useRef, useState } from '../ui.js'
import { get, send } from '../api.js'
import { collect, useData } from '../data.js'
import { place, setQuery, to, toJob, toRun } from '../router.js'
import { Clock, clock, count, Due, duration, localZone, now, second } from '../time.js'
import { Redrive } from './dead.js'
import { calls, ends, open, RunTable, Took } from './job.js'
import { Pager } from './jobs.js'
import { Act, attempt, Copy, Facts, Failure, Load, Panel, Rich, Segments, Table, Title,
  useSettled } from '../parts/bits.js'
import { Icon, Status } from '../parts/icons.js'

const views = [['', 'All'], ['open', 'Open'], ['pending', 'Waiting'], ['running', 'Running'],
  ['succeeded', 'Succeeded'], ['failed', 'Failed'], ['dead', 'Dead'], ['lost', 'Lost'], ['expired', 'Expired'],
  ['canceled', 'Canceled']]

const every = [...open, ...ends].join()

export default function Runs() {
  const q = place.value.query, status = (q.get('status') ?? '').replace(/^all$/, '')
  const filter = { job: q.get('job') ?? '', worker: q.get('worker') ?? '', error: q.get('error') ?? '',
    from: q.get('from') ?? '', to: q.get('to') ?? '' }
  const list = useData((abort) => collect((cursor, limit) => get('/runs',
    { ...filter, status: status === 'open' ? '' : status || every, cursor, limit }, { abort }), 'runs', 100,
    q.get('cursor') ?? ''), [q.toString()], { topics: ['runs'], every: 2000 })
  const long = /^(open|running)?$/.test(status)
  return html`<${Title} title="Runs" sub="Open runs of all jobs, and the history of those that ended."/>
    <div class="toolbar"><${Segments} label="Status" value=${status} options=${views}
      onChange=${(v) => setQuery({ status: v, cursor: '' }, { push: true })}/></div>
    <div class="toolbar" role="search"><${Word} name="job" label="Job"/><${Word} name="worker" label="Worker"/>
      <${Word} name="error" label="Error contains"/>
      ${Object.values(filter).some(Boolean) && html`<a class="button quiet" href=${to('/runs', { status })}>Clear</a>`}
        </div>
    ${long && html`<${Longest}/>`}
    <${Panel} title=${views.find((v) => v[0] === status)?.[1] ?? status}>
      <${Load} of=${list} bones=${8} empty=${{ when: (d) => !d.rows.length && !d.next, icon: 'runs',
      title: status ? `No run is ${status}` : 'Nothing has run yet',
      text: status ? 'Choose another status, or remove a filter.' : 'Runs appear here from when they are due.' }}>
      ${(d) => html`<${RunTable} runs=${d.rows} named/><${Pager} page=${d}/>`}<//><//>`
}

function Word({ name, label }) {
  const q = place.value.query
  const [text, setText] = useState(q.get(name) ?? '')
  const settled = useSettled(text, 350)
  useEffect(() => { if (settled !== (q.get(name) ?? '')) setQuery({ [name]: settled, cursor: '' }) }, [settled])
  useEffect(() => { setText(q.get(name) ?? '') }, [q.get(name)])
  return html`<input class="input" type="search" aria-label=${label}
    placeholder=${label} value=${text} onInput=${(e) => setText(e.target.value)}/>`
}

/** What runs longest, against what is usual for its job. */
function Longest() {
  const sum = useData((abort) => get('/runs:summary', {}, { abort }), [place.value.query.get('ns')],
    { topics: ['runs'], every: 5000 })
  second.value
  if (!sum.data?.longest?.length) return null
  return html`<${Panel} title="Running longest" className="below"><${Table} label="Running longest"
    id=${(r) => r.run_id} rows=${sum.data.longest.slice(0, 8)} cols=${[
    ['Job', (r) => html`<a class="main" href=${toRun(r)}>${r.job_name || r.job_id}</a>`, 'minmax(140px, 1.4fr)',
      'lead'], ['Status', (r) => html`<${Status} of=${r.status}/>`, '110px'],
    ['Runs', (r) => { const ms = r.started_at ? now() - Date.parse(r.started_at) : null;
      return html`<span class=${r.p95_ms && ms > r.p95_ms * 2 ? 's-failed' : r.p95_ms && ms > r.p95_ms ? 's-missed' :
      ''}>${duration(ms)}</span>` }, '90px', 'num'],
    ['Usual p95', (r) => html`<span class="muted">${duration(r.p95_ms)}</span>`, '90px', 'num'],
      ['Worker', (r) => html`<span class="muted">${r.worker}</span>`, '100px', 'minor'],
    ['', (r) => html`<${Act} className="quiet danger" not=${r.status === 'canceling' && 'It is being canceled.'}
      onClick=${async () => {
      await attempt('It is being canceled.', () => send('POST', `/runs/${encodeURIComponent(r.run_id)}:cancel`,
      { params: { namespace: r.namespace } })); sum.reload() }}>Cancel<//>`, '80px', 'actions']]}/><//>`
}

export function RunPage({ args: [ref] }) {
  const path = '/runs/' + encodeURIComponent(ref)
  const found = useData((abort) => get(path, {}, { abort }), [ref], { topics: ['runs'], every: 2000 })
  return html`<${Load} of=${found} bones=${8}>${(run) =>
    html`<${Run} run=${run} path=${path} changed=${found.reload}/>`}<//>`
}

function Run({ run, path, changed }) {
  // What it calls and its zone are the job's. One that was deleted is known by its history only.
  const job = useData((abort) => run.job_deleted ? Promise.resolve(null) :
    get('/jobs/' + run.job_id, { namespace: run.namespace }, { abort }), [run.job_id]).data
  const name = run.job_name || run.job_id, zone = job?.timezone ?? localZone, exact = { zone, ms: true, date: false }
  const at = (t) => t && html`<${Clock} at=${t} ...${exact}/>`
  // A run that is redriven keeps its id: the attempt that it died of is followed by others.
  const died = run.attempts.find((a) => a.status === 'dead' && a.fence !== run.fence)
  // Between two attempts it has the fence of the last one, and what there is to see is of that one.
  const last = open.includes(run.status) && run.attempts.find((a) => a.fence === run.fence), f = last || run
  const fence = Number(place.value.query.get('attempt')), past = run.attempts.find((a) => a.fence === fence) ?? last
  const tries = [...run.attempts.map((a) => [a.fence, a.attempt]).reverse(),
    ...open.includes(run.status) && !last ? [[run.fence, run.attempt ?? 'next']] : []]
  return html`<${Title} title=${html`${run.job_deleted ? 'Deleted job ' : ''}${name}
      ${' '}<span class="muted">at ${clock(Date.parse(run.scheduled_at), zone)}</span>`}
      crumbs=${[['Runs', to('/runs')], ...run.job_deleted ? [] : [[name, toJob(run)]]]}
      sub=${html`<span class="row wrapping"><${Status} of=${run.status}/>
        ${run.reason && html`<span>${run.reason.replaceAll('_', ' ')}</span>`}
        ${job && html`<code class="wrap">${calls(job)}</code>`}
        ${run.origin !== 'schedule' && html`<span class="tag">${run.origin}</span>`}
        ${died && html`<span class="tag">redriven</span>`}
        ${run.forced && html`<span class="tag">forced</span>`}</span>`}
      actions=${run.status === 'dead' && !run.job_deleted ? html`<${Letter} run=${run} changed=${changed}/>` :
        open.includes(run.status) && html`<${Act} className="danger"
        not=${run.status === 'canceling' && 'It is being canceled.'} onClick=${async () => {
        await attempt('It is being canceled.', () => send('POST', path + ':cancel')); changed() }}>
        <${Icon} name="slash"/>Cancel<//>`}/>
    ${run.error && html`<div class="banner bad"><${Icon} name="cross"/><div class="grow"><p class="mono wrap">
      <${Rich} text=${run.error}/></p></div><${Copy} text=${run.error}/></div>`}
    ${last && html`<div class="banner bad"><${Icon} name="retry"/><div class="grow"><p><strong>
      Attempt ${last.attempt} ${last.status === 'failed' ? 'failed' : `is ${last.status}`}.
      ${run.status === 'retrying' && html` The next attempt is due <${Due} at=${run.ready_at} zone=${zone}/>.`}</strong>
      </p><p class="mono wrap"><${Rich} text=${last.error || (last.reason ?? '').replaceAll('_', ' ')}/></p></div>
      ${last.error && html`<${Copy} text=${last.error}/>`}</div>`}
    ${run.wait_reason && html`<div class="banner warn"><${Icon} name="clock"/><div><p>
      <strong>It waits:</strong> ${run.wait_reason}</p></div></div>`}
    <div class="cols"><${Panel} title="Output" aside=${tries.length > 1 ? 'of attempt' : ''} className="c8"
      actions=${tries.length > 1 && html`<${Segments} label="Attempt" value=${past?.fence ?? tries.at(-1)[0]}
      options=${tries.slice(-10)} onChange=${(f) => setQuery({ attempt: f === tries.at(-1)[0] ? '' : f })}/>`}>
      <${Output} path=${path} run=${run} past=${past}/><//>
      <${Panel} title="Facts" className="c4"><div class="body"><${Facts}
        rows=${[['Scheduled', html`<${Clock} at=${run.scheduled_at} zone=${zone} ms/>`], ['Zone', zone],
        last && run.status === 'retrying' && ['Next attempt', at(run.ready_at)], ['Attempt', f.attempt],
        ['Ready', at(f.ready_at)], ['Claimed', at(f.claimed_at)], ['Started', at(f.started_at)],
        ['Finished', at(f.finished_at)], ['Took', f.started_at && html`<${Took} run=${f}/>`],
        ['Lag', f.lag_ms != null && duration(f.lag_ms)], ['Worker', f.worker],
        ['Redriven', died && html`after it died of attempt ${died.attempt} at ${at(died.finished_at)}`],
        ['Fence', run.fence && html`<code>${run.fence}</code>`],
        ['Idempotency key', run.idempotency_key && html`<span class="row"><code class="wrap">${run.idempotency_key}
          </code><${Copy} text=${run.idempotency_key}/></span>`], ['Run',
          html`<span class="row"><code class="wrap">${run.run_id}</code><${Copy} text=${run.run_id}/></span>`],
          ['Job version', run.job_version && run.job_version +
          (job && job.version !== run.job_version ? `, now ${job.version}` : '')]]}/></div><//></div>
    ${run.attempts.length > 0 && html`<${Panel} title="Attempts" className="after">
      <${Table} label="Attempts" id=${(a) => a.fence + '-' + a.attempt} rows=${run.attempts} cols=${[
      ['Attempt', (a) => html`<strong>${a.attempt}</strong>`, '64px'],
        ['Status', (a) => html`<${Status} of=${a.status}/>`, '112px'],
        ['Started', (a) => html`<${Clock} at=${a.started_at ?? a.claimed_at} zone=${zone} ms/>`, '196px'],
      ['Error', (a) => html`<span class="mono muted wrap">${a.error ||
        (a.reason ?? '').replaceAll('_', ' ')}</span>`, 'minmax(120px, 1fr)', 'wide'],
        ['Worker', (a) => a.worker, '96px', 'minor'], ['Fence', (a) => html`<code>${a.fence}</code>`, '96px',
        'num minor'],
      ['Lag', (a) => duration(a.lag_ms), '68px', 'num minor'], ['Took', (a) => html`<${Took} run=${a}/>`, '76px',
        'num']]}/><//>`}`
}

/** Another life for a dead run, while its letter is there. */
function Letter({ run, changed }) {
  const { data } = useData((abort) => get('/dead', { job: run.job_id, namespace: run.namespace, limit: 100 },
    { abort }), [run.run_id, run.fence], { topics: ['dead'], every: 5000 })
  const letter = data?.dead.find((l) => l.run_id === run.run_id)
  if (letter) return html`<${Redrive} body=${{ ids: [letter.dead_id] }} of=${letter} n=${1} name="it" label="Redrive"
    changed=${changed}/>`
  return data?.next_cursor ? html`<a class="button" href=${to('/dead', { job: run.job_name || run.job_id })}>
    Dead letters</a>` : data && html`<${Act} not="Its dead letter was purged."><${Icon} name="retry"/>Redrive<//>`
}

const most = 2_000_000

/** What the attempt wrote, as it writes it. It is text and stays text. */
function Output({ path, run, past }) {
  const [text, setText] = useState(''), [done, setDone] = useState(false), [error, setError] = useState(null),
    [again, setAgain] = useState(0)
  const [follow, setFollow] = useState(true), [wrap, setWrap] = useState(true), [find, setFind] = useState('')
  const box = useRef(null)
  useEffect(() => {
    const abort = new AbortController()
    let after = 0, fence = 0
    const read = async () => {
      while (!abort.signal.aborted) {
        try {
          const o = await get(path + '/output', fence ? { after, fence } : {}, { abort: abort.signal })
          setError(null)
          if (fence && o.fence !== fence) setText('') // another attempt writes now
          fence = o.fence ?? 0
          after = o.next
          if (o.text) setText((t) => (o.done && !fence ? o.text : t + o.text).slice(-most))
          setDone(o.done)
          if (o.done) return
          if (!o.text) await new Promise((r) => setTimeout(r, 250))
        } catch (e) {
          if (e.name === 'AbortError') return
          setError(e)
          if (e.status && e.status < 500) return
          await new Promise((r) => setTimeout(r, 2000))
        }
      }
    }
    setText(past?.output ?? '')
    setDone(!!past)
    if (!past) read()
    return () => abort.abort()
  }, [path, again, past?.fence])
  useEffect(() => { if (follow && box.current) box.current.scrollTop = box.current.scrollHeight }, [text, follow])
  const scrolled = () => { const b = box.current;
    if (follow && b.scrollHeight - b.scrollTop - b.clientHeight > 60) setFollow(false) }
  const parts = find ? split(text, find) : null
  if (error && !text && error.status === 404) return html`<div class="state"><p>${error.detail}</p></div>`
  return html`<div class="toolbar body output-bar"><input class="input search" type="search"
    placeholder="Find in output" aria-label="Find in output" value=${find} onInput=${(e) => setFind(e.target.value)}/>
      ${find && html`<span class="muted small" role="status">${count((parts.length - 1) / 2)} found</span>`}
        <span class="grow"></span>
      ${!done && html`<label class="check"><input type="checkbox" checked=${follow}
        onChange=${(e) => setFollow(e.target.checked)}/>Follow</label>`}<label class="check">
        <input type="checkbox" checked=${wrap} onChange=${(e) => setWrap(e.target.checked)}/>Wrap</label>
        <${Copy} text=${text} label="Copy"/></div>
    ${error && html`<${Failure} error=${error} inline retry=${() => setAgain(again + 1)}/>`}
    <pre class=${'output' + (wrap ? ' wrapped' : '')} ref=${box} tabindex="0" role="log" aria-label="Output"
      aria-live="off" onScroll=${scrolled}>${parts ? parts.map((p, i) => i % 2 ? html`<mark>${p}</mark>` : p) : text}
      ${!text && html`<span class="muted">${done ? 'It wrote nothing.' : run.status === 'running' ||
      run.status === 'claimed' ? 'Nothing yet.' : 'It has not begun.'}</span>`}</pre>`
}

function split(text, find) {
  const out = [], low = text.toLowerCase(), what = find.toLowerCase()
  let at = 0
  for (let i = low.indexOf(what); i >= 0 && out.length < 2000; i = low.indexOf(what, at)) {
    out.push(text.slice(at, i), text.slice(i, i + what.length))
    at = i + what.length
  }
  out.push(text.slice(at))
  return out
}
