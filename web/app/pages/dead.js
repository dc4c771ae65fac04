import { html, useState } from '../ui.js'
import { get, send, who } from '../api.js'
import { useData } from '../data.js'
import { place, setQuery, to, toJob, toRun } from '../router.js'
import { clock, Clock, count, localZone, Time } from '../time.js'
import { Act, ask, Copy, Load, Panel, Still, Table, Title, toast } from '../parts/bits.js'
import { Icon } from '../parts/icons.js'

/** A node that is busy counts some thousand letters at a time; those of one cause are added up. */
async function grouped(job, abort) {
  const all = new Map()
  let page, cursor = '', scanned = 0, left = 0
  for (let asked = 0; asked < 25; asked++) {
    page = await get('/dead:groups', { job, limit: 100, cursor }, { abort })
    for (const g of page.groups) {
      const had = all.get(g.key)
      all.set(g.key, had ? { ...had, count: had.count + g.count, jobs: Math.max(had.jobs, g.jobs), more: '+',
        first: g.first } : g)
    }
    scanned += page.scanned
    left += page.left_out
    if (!(cursor = page.next_cursor)) break
  }
  return { ...page, scanned, left_out: left, groups: [...all.values()].sort((a, b) => b.count - a.count) }
}

export default function Dead() {
  const q = place.value.query, ns = q.get('ns'), job = q.get('job') ?? ''
  const groups = useData((abort) => grouped(job, abort), [ns, job], { topics: ['dead'], every: 10000 })
  const cursor = q.get('cursor') ?? ''
  const letters = useData((abort) => get('/dead', { job, limit: 100, cursor }, { abort }), [ns, job, cursor],
    { topics: ['dead'], every: 5000 })
  // Known where all of them were looked at: the total is that of all namespaces.
  const n = groups.data && !groups.data.next_cursor && !groups.data.left_out ?
    groups.data.groups.reduce((n, g) => n + g.count, 0) : undefined
  const changed = () => { groups.reload(); letters.reload() }
  const which = { body: job ? { job } : { all: true }, n, changed, what: 'all ' + (n ? count(n) : '') +
    (job ? ' of ' + job : ''), scope: job ? `All dead letters of the job ${job}.` :
    `All dead letters of the namespace ${ns || who.value.namespace || 'default'}.`,
    not: ns === '*' && 'Choose one namespace, or act on an error below.' }
  const some = letters.data?.dead?.length > 0 || cursor
  return html`<${Title} title="Dead letters"
    sub="Runs that have used up their attempts. Redrive runs them again; purge removes them."
      actions=${some && html`<${Redrive} ...${which}/><${Purge} ...${which}/>`}/>
    ${job && html`<div class="toolbar"><span class="pill">job ${job}</span>
      <a class="button quiet" href=${to('/dead')}>Show all jobs</a></div>`}
    ${groups.data?.groups.length !== 0 && html`<${Panel} title="By error" of=${groups}
      aside=${groups.data?.next_cursor ? `the newest ${count(groups.data.scanned)} letters` : ''}>
      <${Load} of=${groups} bones=${4}>${(d) => html`<${Still} rows=${d.groups} id=${(g) => g.key}>${(rows, gone) =>
        rows.map((g) => html`<${Group} key=${g.key} g=${g} gone=${gone(g)} open=${q.get('group') === g.key}
        changed=${changed}/>`)}<//>`}<//><//>`}
    <${Panel} title="One by one" className="after"><${Load} of=${letters} bones=${6} empty=${{ ...none,
      when: (d) => !d.dead.length && !d.next_cursor && !cursor }}>
      ${(d) => html`<${Table} label="Dead letters" rows=${d.dead} id=${(l) => l.dead_id} cols=${[
      ['Job', (l) => html`<a class="main" href=${toJob(l)}>${l.job_name || l.job_id}</a>`, 'minmax(120px, 1fr)',
        'lead'], ['Scheduled', (l) => html`<a href=${toRun(l)}><${Clock} at=${l.scheduled_at}/></a>`, '170px'],
      ['Error', (l) => html`<span class="mono muted clamp" title=${l.error}>${l.error ||
        (l.reason ?? '').replaceAll('_', ' ')}</span>`, 'minmax(140px, 2fr)', 'wide'],
        ['Attempts', (l) => l.attempt, '66px', 'num minor'], ['Died', (l) => html`<${Time} at=${l.finished_at}/>`,
        '100px', 'said'],
      ['', (l) => html`<${Redrive} body=${{ ids: [l.dead_id] }} of=${l} n=${1} changed=${changed} quiet/>`, '84px',
        'actions']]}/>
      ${(d.next_cursor || cursor) && html`<div class="more">${cursor &&
        html`<button class="button" onClick=${() => setQuery({ cursor: '' }, { push: true })}>First page</button>`}
        ${d.next_cursor && html`<button class="button" onClick=${() =>
        setQuery({ cursor: d.next_cursor }, { push: true })}>Next page</button>`}</div>`}`}<//><//>`
}
const none = { icon: 'check', title: 'No dead letters',
  text: 'A run comes here when its last attempt has failed.' }

function Group({ g, open, changed, gone }) {
  const [tried, setTried] = useState(false), ten = g.count > 10
  const which = { of: g, changed, scope: `Those with the error “${g.error || 'no error text'}”.` }
  return html`<details class="group" open=${open} inert=${gone}><summary><b class="num">${count(g.count)}</b>
    <span class="grow"><span class="mono wrap block">${g.sample?.error || g.error || 'no error text'}</span>
    <span class="muted tiny">${count(g.jobs)}${g.more} ${g.jobs === 1 ? 'job' : 'jobs'} · since <${Clock}
    at=${g.first}/> · last <${Time} at=${g.last}/></span></span><${Icon} name="right"/></summary>
    <div class="body stack"><div class="row wrapping small">${g.job_names.map((n) =>
      html`<a class="tag" href=${toJob({ name: n, namespace: g.namespace })}>${n}</a>`)}
      ${g.jobs > g.job_names.length && html`<span class="muted">and ${count(g.jobs - g.job_names.length)} more</span>`}
      <${Copy} text=${g.sample?.error} label="Copy the error"/></div>
      <div class="row wrapping">${ten && html`<${Redrive} ...${which} body=${{ group: g.key, max: 10 }} n=${10}
        what="the first ten" changed=${() => { setTried(true); changed() }}/>`}
        <${Redrive} ...${which} body=${{ group: g.key }} n=${g.count} what=${ten ? `these ${count(g.count)}` :
          count(g.count)}/>
        <${Purge} ...${which} body=${{ group: g.key }} n=${g.count} what=${`these ${count(g.count)}`}/>
        ${tried && html`<span class="small muted">Check that they succeed before you redrive the rest.</span>`}</div>
          </div></details>`
}

const within = (thing) => thing ? { namespace: thing.namespace } : {}
const letters = (n) => n === 1 ? '1 dead letter' : `${n == null ? 'all' : count(n)} dead letters`
/** What a question is about: the letters of an error, of a job, of a namespace, or one. */
const about = (l, scope) => scope ?? `The run of ${l.job_name || l.job_id} that was scheduled at ${
  clock(Date.parse(l.scheduled_at), localZone)}.`
const act = async (changed, said, fn) => {
  try { toast(...said(await fn())) } catch (e) { toast(e.detail, { detail: e.remedy, bad: true }) }
  changed()
}

export function Redrive({ body, of, n, what = '', scope, changed, quiet, not }) {
  const click = async () => await ask({ title: `Redrive ${letters(n)}?`, yes: n ? `Redrive ${count(n)}` : 'Redrive all',
    text: about(of, scope) + ' Runs use the current definition of their job, one at a time per job, after what is due.'
  }) && act(changed, (r) => [`${letters(r.count)} redriven.`, { href: to('/runs'), detail: [
    r.gone && `${count(r.gone)} left: their job is deleted.`, r.open && `${count(r.open)} left: their run is open.`
  ].filter(Boolean).join(' ') }], () =>
    send('POST', '/dead:redrive', { body, params: within(of) }))
  return html`<${Act} className=${quiet ? 'quiet' : ''} not=${not} onClick=${click}>
    ${!quiet && html`<${Icon} name="retry"/>`}Redrive ${what}<//>`
}

function Purge({ body, of, n, what, scope, changed, not }) {
  const click = async () => await ask({ title: `Purge ${letters(n)}?`, danger: true, type: n > 10 ? n : undefined,
    text: about(of, scope) + ' They cannot be redriven afterwards. The history of their runs stays.',
    yes: n ? `Purge ${count(n)}` : 'Purge all' }) && act(changed, (r) => [`${letters(r.count)} purged.`], () =>
    send('DELETE', '/dead', { body, params: within(of) }))
  return html`<${Act} className="danger" not=${not} onClick=${click}>Purge ${what}<//>`
}
