import { html, render, useEffect, useState, signal } from './ui.js'
import { place, namespace, setQuery, to, toJob, toMain, go, mayLeave } from './router.js'
import { get, who, locked, identify, setToken, staleness, hasToken } from './api.js'
import { link, cluster, stats, node } from './live.js'
import { choice, flip } from './look.js'
import { helpOpen, keysOn, setKeys, places } from './keys.js'
import { count, duration, lost, second } from './time.js'
import { Icon, Bell } from './parts/icons.js'
import { Asking, Dialog, Empty, Failure, Toasts, useSettled } from './parts/bits.js'

// A view is loaded when it is first opened.
const overview = () => import('./pages/overview.js'), runs = () => import('./pages/runs.js'),
  system = () => import('./pages/system.js'), edit = () => import('./pages/edit.js')
const views = [
  [/^\/$/, overview],
  [/^\/jobs$/, () => import('./pages/jobs.js')],
  [/^\/jobs\/new$/, edit],
  [/^\/jobs\/([^/]+)\/edit$/, edit],
  [/^\/jobs\/([^/]+)$/, () => import('./pages/job.js')],
  [/^\/runs$/, runs],
  [/^\/runs\/([^/]+)$/, runs, 'RunPage'],
  [/^\/upcoming$/, overview, 'Upcoming'],
  [/^\/dead$/, () => import('./pages/dead.js')],
  [/^\/queues$/, system, 'Queues'],
  [/^\/workers$/, system, 'Workers'],
  [/^\/calendars$/, system, 'Calendars'],
  [/^\/cluster$/, system, 'Cluster'],
  [/^\/demo$/, system, 'Demo'],
]

const nav = [
  ['', [['/', 'overview', 'Overview'], ['/jobs', 'jobs', 'Jobs'], ['/runs', 'runs', 'Runs'],
    ['/upcoming', 'upcoming', 'Upcoming'], ['/dead', 'dead', 'Dead letters']]],
  ['Resources', [['/queues', 'queues', 'Queues'], ['/workers', 'workers', 'Workers'],
    ['/calendars', 'calendars', 'Calendars']]],
  ['System', [['/cluster', 'cluster', 'Cluster'], ['/demo', 'bell', 'Demo']]],
]
const menuOpen = signal(false)

function Nav() {
  const path = place.value.path
  const here = (p) => p === '/' ? path === '/' : path === p || path.startsWith(p + '/')
  // They are those of all namespaces.
  const badge = namespace() && namespace() !== '*' ? {} : { '/runs': stats.value?.running, '/dead': stats.value?.dead }
  const c = cluster.value
  return html`<nav id="nav" class=${'nav' + (menuOpen.value ? ' open' : '')} aria-label="Main">
    <a class="brand" href=${to('/')}><${Bell}/>Carillon</a>
    <div>${nav.map(([name, items]) => html`<div class="group">${name && html`<span>${name}</span>`}<ul>
      ${items.filter(([p]) => p !== '/demo' || (c?.members?.length ?? 0) > 1).map(([p, icon, text]) =>
        html`<li><a class="item" href=${to(p)} aria-current=${here(p) ? 'page' : null}>
        <${Icon} name=${icon}/>${text}${badge[p] > 0 && html`<span class=${'count' + (p === '/dead' ? ' hot' : '')}>
          ${count(badge[p])}</span>`}</a></li>`)}</ul></div>`)}</div>
    <div class="foot">${node.value && html`<span>${[...new Set(Object.values(node.value))].join(' · ')}</span>`}
      ${who.value?.secure && html`<span class="wrap">${who.value.name} (${who.value.role})</span>
        <button class="button quiet" onClick=${async () => { if (await mayLeave()) {
          setToken(''); who.value = null; locked.value = { detail: '' } } }}>
          <${Icon} name="exit"/>Sign out</button>`}</div></nav>
    ${menuOpen.value && html`<button class="nav-close" aria-label="Close the menu"
      onClick=${() => { menuOpen.value = false }}></button>`}`
}

function LivePill() {
  const l = link.value, c = cluster.value
  if (l !== 'gone' && c && !c.leader) return html`<span class="pill bad"><span class="dot"></span>no leader</span>`
  if (l === 'live') return html`<span class="pill good" title=${c ? `${c.leader} leads, term ${c.term}` : ''}>
    <span class="dot"></span>live</span>`
  if (l !== 'connecting') return html`<span class=${l === 'gone' ? 'pill bad' : 'pill'} title=${l === 'poll' ?
    'No event stream: the page polls every two seconds.' : ''}><span class="dot"></span>not live</span>`
  return html`<span class="pill"><span class="dot"></span>connecting</span>`
}

function Top() {
  const [text, setText] = useState(''), [found, setFound] = useState([])
  const settled = useSettled(text.trim())
  useEffect(() => {
    if (settled) get('/jobs', { q: settled, limit: 8 }).then((d) => setFound(d.jobs), () => setFound([]))
  }, [settled])
  const find = (e) => {
    e.preventDefault()
    const t = text.trim(), job = found.find((j) => j.name === t)
    if (!t) return
    setText('')
    e.target.querySelector('input').blur()
    go(job ? toJob(job) : /^r_/.test(t) ? to('/runs/' + encodeURIComponent(t)) :
      /^j_/.test(t) ? to('/jobs/' + encodeURIComponent(t)) : to('/jobs', { q: t }))
  }
  const ns = namespace(), own = who.value?.namespace
  return html`<header class="top">
    <button class="button quiet icon-only menu" aria-label="Menu" aria-expanded=${menuOpen.value} aria-controls="nav"
      onClick=${() => { menuOpen.value = !menuOpen.value }}><${Icon} name="menu"/>
      ${stats.value?.dead > 0 && html`<span class="dot"></span>`}</button>
    <form class="find" role="search" onSubmit=${find}><${Icon} name="search"/>
      <label class="sr" for="find">Find a job, or open a run by its id</label>
      <input id="find" class="input" placeholder="Find a job or run" autocomplete="off" value=${text}
        list="found" onInput=${(e) => setText(e.target.value)} onKeyDown=${(e) => {
        if (e.key === 'Escape') { setText(''); toMain() } }}/>
      <datalist id="found">${text && found.map((j) => html`<option value=${j.name}></option>`)}</datalist>
      <kbd aria-hidden="true">/</kbd></form>
    <span class="space"></span>
    ${own ? html`<span class="pill hide-small">${own}</span>` : html`<label class="label hide-small"
      for="ns">Namespace</label>
      <input id="ns" class="input namespace" aria-label="Namespace" list="ns-list" autocomplete="off"
      placeholder="default"
      value=${ns} title="Namespace; * for all" onChange=${(e) => setQuery({ ns: e.target.value.trim() === 'default' ?
        '' : e.target.value.trim(), cursor: '' })}/>
      <datalist id="ns-list"><option value="default"></option><option value="*">all namespaces</option></datalist>`}
    <${LivePill}/>
    <button class="button quiet icon-only hide-small" aria-label="Keyboard shortcuts" title="Keys (?)"
      onClick=${() => { helpOpen.value = true }}><${Icon} name="keyboard"/></button>
    <button class="button quiet icon-only" aria-label=${'Theme: ' + choice.value}
      title=${`Theme: ${choice.value} (t)`} onClick=${flip}><${Icon} name=${choice.value}/></button>
  </header>`
}

/** Apart from the banner, which is not to be read out every second. */
function Age() {
  second.value
  return html`<span aria-live="off">What you see is ${duration(Math.max(1e3, Date.now() - lost.value))} old.</span>`
}

/** What is wrong with the way to the cluster. */
function Banners() {
  const c = cluster.value
  const others = c?.members?.filter((m) => m.id !== node.value?.id) ?? []
  if (lost.value) return html`<div class="banner bad" role="alert"><${Icon} name="triangle"/><div><p>
    <strong>${node.value?.id ?? 'This node'} does not answer.</strong> The page keeps trying. <${Age}/></p>
    ${others.length > 0 && html`<p>The same view on another node: ${others.map((m, i) =>
      html`${i ? ', ' : ''}<a href=${`${location.protocol}//${m.address}${location.pathname}${location.search}`}>${m.id}
      </a>`)}</p>`}</div></div>`
  if (c && !c.leader) {
    const away = c.members.filter((m) => m.alive === false).map((m) => m.id)
    return html`<div class="banner bad" role="alert"><${Icon} name="triangle"/><div><p>
      <strong>There is no leader${away.length ? `: ${away.join(' and ')} ${away.length > 1 ? 'are' : 'is'} missing` :
      ''}.</strong>
      Nothing starts, and nothing can be changed, until a majority of the voters is back.</p>
      <p>What you see is this node's own state${staleness.value != null ? `, ${duration(staleness.value)} old` :
        ''}.</p></div></div>`
  }
  return null
}

function Help() {
  if (!helpOpen.value) return null
  const keys = [...Object.entries(places).map(([k, [name]]) => [['g', k], name]), [['/'], 'Search'],
    [['j'], 'Next row'], [['k'], 'Previous row'], [['Enter'], 'Open the row'], [['x'], 'Select the row'],
    [['n'], 'New job'], [['e'], 'Edit the job that is open'], [['p'], 'Pause or resume it'],
    [['t'], 'Theme: light, dark, as the system has it'],
      [['?'], 'This list']]
  return html`<${Dialog} title="Keys" cancel="Close" onClose=${() => { helpOpen.value = false }}>
    <label class="check"><input type="checkbox" checked=${keysOn.value}
      onChange=${(e) => setKeys(e.target.checked)}/>Enable shortcuts without a modifier key</label>
    <dl class="facts">${keys.map(([k, name]) => html`<dt>${k.map((one, i) => html`${i ? ' ' : ''}<kbd>${one}</kbd>`)}
      </dt><dd>${name}</dd>`)}</dl><//>`
}

function Login() {
  const [text, setText] = useState(''), [busy, setBusy] = useState(false)
  const submit = async (e) => {
    e.preventDefault()
    setToken(text.trim())
    setBusy(true)
    try { await identify() } catch (err) { locked.value = err }
    setBusy(false)
  }
  const detail = hasToken() || !/none was sent/.test(locked.value?.detail ?? '') ? locked.value?.detail : ''
  useEffect(() => { document.title = 'Sign in · Carillon' }, [])
  return html`<main class="login"><div class="panel"><div class="brand"><${Bell}/>Carillon</div>
    <form onSubmit=${submit}>
      <p class="muted small">This cluster needs an API token. It is kept until you close the tab.</p>
      <div class="field"><label for="token">API token</label><input id="token" class="input mono" type="password"
        autocomplete="off" spellcheck=${false} required value=${text} aria-invalid=${!!detail}
        aria-describedby="token-wrong" placeholder="ct1.…" autofocus onInput=${(e) => setText(e.target.value)}/>
        <span id="token-wrong" class="wrong wrap" role="alert">${detail}</span></div>
      <button class="button primary" disabled=${busy || !text.trim()}>Sign in</button>
      <p class="tiny muted">An admin creates one: <code>carillon token create NAME --role viewer</code></p></form></div>
        </main>`
}

function View() {
  const path = place.value.path.replace(/(.)\/$/, '$1')
  const found = views.map(([re, ...view]) => [re.exec(path), ...view]).find(([m]) => m)
  const [loaded, setLoaded] = useState({})
  const [match, load, name = 'default'] = found ?? []
  useEffect(() => {
    let ended = false
    load?.().then((module) => !ended && setLoaded({ load, module }), (error) => !ended && setLoaded({ load, error }))
    return () => { ended = true }
  }, [load])
  if (!found) return html`<${Empty} icon="question" title="There is no such page"
    text=${`Nothing is at ${location.pathname}.`}><div class="row"><a class="button" href=${to('/')}>Overview</a></div>
    <//>`
  if (loaded.load !== load) return null
  if (loaded.error) return html`<${Failure} error=${{ detail: 'This view could not be loaded.',
    remedy: 'Reload the page: the node may have been upgraded, or be down.' }} retry=${() => location.reload()}/>`
  return html`<${loaded.module[name]} key=${path} args=${match.slice(1).map(decodeURIComponent)}/>`
}

function App() {
  const [failed, setFailed] = useState(null)
  const begin = () => { setFailed(null); identify().catch(setFailed) }
  useEffect(begin, [])
  useEffect(() => { menuOpen.value = false }, [place.value])
  if (locked.value) return html`<${Login}/><${Toasts}/>`
  if (failed) return html`<main class="login"><${Failure} error=${failed} retry=${begin}/></main>`
  if (!who.value) return null
  return html`<a class="skip" href="#main" onClick=${(e) => { e.preventDefault();
    toMain() }}>Skip to the content</a>
    <div class=${'shell' + (lost.value ? ' old' : '')}><${Nav}/><div><${Top}/>
      <main id="main" class="main" tabindex="-1"><${Banners}/><${View}/></main></div></div>
    <${Toasts}/><${Asking}/><${Help}/>`
}

const root = document.getElementById('app')
root.textContent = ''
render(html`<${App}/>`, root)
