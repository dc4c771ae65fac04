import { html, useState } from '../ui.js'
import { get, send } from '../api.js'
import { useData } from '../data.js'
import { place, setQuery, to, toJob, toRun } from '../router.js'
import { Clock, count, Time } from '../time.js'
import { Act, ask, Copy, Load, Panel, Table, Title, toast } from '../parts/bits.js'
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
  const all = groups.data && !groups.data.next_cursor && !groups.data.left_out ?
    groups.data.groups.reduce((n, g) => n + g.count, 0) : undefined
  const changed = () => { groups.reload(); letters.reload() }
  return html`<${Title} title="Dead letters"
    sub="Runs that have used up their attempts. Redrive runs them again; purge removes them."
      actions=${letters.data?.dead?.length > 0 && html`<${Redrive} body=${job ? { job } : { all: true }}
        n=${all} name=${job ? `those of ${job}` : 'all of them'} changed=${changed} label="Redrive all"/>
        <${Purge} body=${job ? { job } : { all: true }} n=${all} changed=${changed}/>`}/>
    ${job && html`<div class="toolbar"><span class="pill">job ${job}</span>
      <a class="button quiet" href=${to('/dead')}>Clear</a></div>`}
    <${Panel} title="By error" of=${groups} aside=${groups.data?.next_cursor ?
      `the newest ${count(groups.data.scanned)} letters` : ''}>
      <${Load} of=${groups} bones=${4} empty=${none}>${(d) => d.groups.map((g) =>
        html`<${Group} key=${g.key} g=${g} open=${q.get('group') === g.key} changed=${changed}/>`)}<//><//>
    <${Panel} title="Letters" className="after"><${Load} of=${letters} bones=${6} empty=${none}>
      ${(d) => html`<${Table} label="Dead letters" rows=${d.dead} id=${(l) => l.dead_id} cols=${[
      ['Job', (l) => html`<a class="main" href=${toJob(l)}>${l.job_name || l.job_id}</a>`, 'minmax(120px, 1fr)',
        'lead'], ['Scheduled', (l) => html`<a href=${toRun(l)}><${Clock} at=${l.scheduled_at}/></a>`, '170px'],
      ['Error', (l) => html`<span class="mono muted clamp" title=${l.error}>${l.error ||
        (l.reason ?? '').replaceAll('_', ' ')}</span>`, 'minmax(140px, 2fr)', 'wide'],
        ['Attempts', (l) => l.attempt, '66px', 'num minor'], ['Died', (l) => html`<${Time} at=${l.finished_at}/>`,
        '100px', 'said'],
      ['', (l) => html`<${Redrive} body=${{ ids: [l.dead_id] }} of=${l} n=${1} name="it" changed=${changed}
        label="Redrive"
        quiet/>`, '84px', 'actions']]}/>
      ${(d.next_cursor || cursor) && html`<div class="more">${cursor &&
        html`<button class="button" onClick=${() => setQuery({ cursor: '' }, { push: true })}>First page</button>`}
        ${d.next_cursor && html`<button class="button" onClick=${() =>
        setQuery({ cursor: d.next_cursor }, { push: true })}>Next page</button>`}</div>`}`}<//><//>`
}
const none = { when: (d) => !(d.groups ?? d.dead).length, icon: 'check', title: 'No dead letters',
  text: 'A run comes here when its last attempt has failed.' }

function Group({ g, open, changed }) {
  const [tried, setTried] = useState(false)
  return html`<details class="group" open=${open}><summary><b class="num">${count(g.count)}</b><span class="grow">
    <span class="mono wrap block">${g.sample?.error || g.error || 'no error text'}</span>
    <span class="muted tiny">${count(g.jobs)}${g.more} ${g.jobs === 1 ? 'job' : 'jobs'} · since <${Clock}
    at=${g.first}/> · last <${Time} at=${g.last}/></span></span></summary>
    <div class="body stack"><div class="row wrapping small">${g.job_names.map((n) =>
      html`<a class="tag" href=${toJob({ name: n, namespace: g.namespace })}>${n}</a>`)}
      ${g.jobs > g.job_names.length && html`<span class="muted">and ${count(g.jobs - g.job_names.length)} more</span>`}
      </div>
      <div class="command"><code tabindex="0">${g.error}</code><${Copy} text=${g.sample?.error}/></div>
      <div class="row wrapping">${g.count > 10 && html`<${Redrive} body=${{ group: g.key, max: 10 }} of=${g} n=${10}
        name="the first ten" changed=${() => { setTried(true); changed() }} label="Redrive the first ten"/>`}
        <${Redrive} body=${{ group: g.key }} of=${g} n=${g.count} name="the rest" changed=${changed}
          label=${g.count > 10 ? 'Redrive the rest' : `Redrive ${g.count}`}/>
          <${Purge} body=${{ group: g.key }} of=${g} n=${g.count} changed=${changed}/>
        ${tried && html`<span class="small muted">Check that they succeed before you redrive the rest.</span>`}</div>
          </div></details>`
}

const within = (thing) => thing ? { namespace: thing.namespace } : {}

export function Redrive({ body, of, n, name, changed, label, quiet }) {
  const click = async () => {
    if (!(n <= 10) && !await ask({ title: `Redrive ${n ? count(n) : 'all'} dead letters?`,
      text: 'Each runs with the current definition of its job, one at a time per job, after what is due.',
      yes: 'Redrive' })) return
    try {
      const r = await send('POST', '/dead:redrive', { body, params: within(of) })
      toast(`${count(r.count)} ${r.count === 1 ? 'run is' : 'runs are'} back to work.`,
        { href: to('/runs') })
    } catch (e) { toast(e.detail, { detail: e.remedy, bad: true }) }
    changed()
  }
  return html`<${Act} className=${quiet ? 'quiet' : ''} title=${`Run ${name} again`} onClick=${click}>
    ${!quiet && html`<${Icon} name="retry"/>`}${label}<//>`
}

function Purge({ body, of, n, changed }) {
  const click = async () => {
    if (!await ask({ title: `Purge ${n ? count(n) : 'all'} dead letters?`,
      text: 'They cannot be redriven afterwards. The history of their runs stays.', yes: 'Purge', danger: true,
      type: n > 10 ? n : undefined })) return
    try {
      const r = await send('DELETE', '/dead', { body, params: within(of) })
      toast(`${count(r.count)} dead letters were purged.`)
    } catch (e) { toast(e.detail, { detail: e.remedy, bad: true }) }
    changed()
  }
  return html`<${Act} className="danger" onClick=${click}>Purge<//>`
}
