// The URL is the state of a view: a link that is passed on shows the same.
import { signal } from './ui.js'

const root = '/ui'
const read = () => ({ path: location.pathname.replace(/^\/ui\/?/, '/'), query: new URLSearchParams(location.search) })

/** Where the page is: path below /ui, and the query. */
export const place = signal(read())

/** The namespace that lists are about; empty is the usual one. */
export const namespace = () => place.value.query.get('ns') ?? ''

/** A link into the page. The namespace goes along unless the parameters name one. */
export function to(path, params = {}) {
  const q = new URLSearchParams()
  const ns = 'ns' in params ? params.ns : namespace()
  for (const [k, v] of Object.entries(params)) if (k !== 'ns' && v != null && v !== '' && v !== false) q.set(k, v)
  if (ns) q.set('ns', ns)
  const text = q.toString()
  return root + path + (text ? '?' + text : '')
}

/** A link to a job, by its name where it has one. Rows of all namespaces link into their own. */
export function toJob(job, more = '', params = {}) {
  const name = job.name || job.job_name
  const ref = name && name !== 'new' ? name : job.job_id // /jobs/new is the form
  return to('/jobs/' + encodeURIComponent(ref) + more, { ...inSpace(job), ...params })
}
export const toRun = (run) => to('/runs/' + encodeURIComponent(run.run_id), inSpace(run))

/** The namespace of a thing, for a link to it, where it is not the one that is looked at. */
export const inSpace = ({ namespace: of }) => of && of !== (namespace() || 'default') ?
  { ns: of === 'default' ? '' : of } : {}

// What asks before the view is left, while something in it is not saved.
let unsaved = null
const stay = (e) => e.preventDefault()
/** Has leaving the view ask, and the browser before it closes or reloads the tab. What it returns ends that. */
export function guard(ask) {
  unsaved = ask
  addEventListener('beforeunload', stay)
  return () => { unsaved = null; removeEventListener('beforeunload', stay) }
}
export const mayLeave = async () => !unsaved || unsaved()

let at = history.state ?? 0 // where the view is in the history of the tab
export async function go(href, { replace = false, saved = false } = {}) {
  if (href === location.pathname + location.search) return
  if (unsaved && !saved && href.split('?')[0] !== location.pathname && !await unsaved()) return
  history[replace ? 'replaceState' : 'pushState'](replace ? at : ++at, '', href)
  place.value = read()
  if (!replace) arrived()
}

/** Changes parameters of the view; empty ones go away. */
export function setQuery(changes, { push = false } = {}) {
  const q = new URLSearchParams(place.value.query)
  for (const [k, v] of Object.entries(changes)) v == null || v === '' || v === false ? q.delete(k) : q.set(k, v)
  const text = q.toString()
  go(location.pathname + (text ? '?' + text : ''), { replace: !push })
}

/** A new view begins at its top, and there keyboards and screen readers go on. */
function arrived() {
  scrollTo(0, 0)
  toMain()
}
export const toMain = () => document.getElementById('main')?.focus({ preventScroll: true })

addEventListener('popstate', async ({ state }) => {
  const next = read(), by = (state ?? 0) - at
  if (unsaved && by && next.path !== place.value.path) {
    history.go(-by) // the browser has moved already, and the form stays
    if (await unsaved()) { unsaved = null; history.go(by) }
    return
  }
  at += by
  place.value = next
})
document.addEventListener('click', (e) => {
  if (e.defaultPrevented || e.button || e.metaKey || e.ctrlKey || e.shiftKey || e.altKey) return
  const a = e.target instanceof Element && e.target.closest('a[href]')
  if (!a || a.target || a.hasAttribute('download') || a.getAttribute('href')[0] === '#') return
  const url = new URL(a.href)
  if (url.origin !== location.origin || !(url.pathname === root || url.pathname.startsWith(root + '/'))) return
  e.preventDefault()
  go(url.pathname + url.search)
})
