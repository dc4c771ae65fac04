// What the node says by itself.
import { signal, batch, effect } from './ui.js'
import { address, get, headers, leaderless, lines, locked, newKey, who } from './api.js'
import { heardNow, lost } from './time.js'

/** live: frames come. poll: no stream, so the status is asked for. gone: the node does not answer. */
export const link = signal('connecting')
let heard = Date.now()
effect(() => { lost.value = link.value === 'gone' ? heard : 0 })
export const stats = signal(null)
export const cluster = signal(null)
/** The node that serves this page, and its version. */
export const node = signal(null)
export const recent = signal([])

const topics = new Map() // topic -> set of functions
let stream = null, timer = null, failures = 0

/** Calls back when something of a topic may have changed. What it returns ends that. */
export function watch(topic, fn) {
  let all = topics.get(topic)
  if (!all) { topics.set(topic, all = new Set()); later(40) }
  all.add(fn)
  return () => {
    all.delete(fn)
    if (!all.size) { topics.delete(topic); later(1500) }
  }
}

// Two views in a row often want the same; a stream that is opened again for each would say hello more than anything
// else.
function later(ms) {
  if (!wanted) return
  clearTimeout(timer)
  timer = setTimeout(connect, ms)
}
let wanted = false, current = ''

function tell(topic) { for (const fn of topics.get(topic) ?? []) fn() }

// A token for one namespace is told nothing of the cluster.
const asked = () => ['stats', ...who.value.namespace ? [] : ['cluster'], ...[...topics.keys()].filter((t) =>
  t !== 'stats' && t !== 'cluster').sort()].slice(0, 16).join()

// Three tabs have a stream. A seat is a tab's while it says so every second.
const self = newKey()
let seat = null
function sit() {
  try {
    for (const k of [0, 1, 2].map((i) => 'carillon.seat.' + i)) {
      const [tab, at] = (localStorage.getItem(k) ?? '').split(' ')
      if (tab !== self && Math.abs(Date.now() - at) < 4000) continue
      localStorage.setItem(k, `${self} ${Date.now()}`)
      seat = k
      return true
    }
  } catch { return true /* without storage there is no knowing */ }
  seat = null
  return false
}
setInterval(() => { if (stream && !sit()) { stop(); later(0) } }, 1000)

async function connect() {
  clearTimeout(timer)
  if (!wanted || document.hidden) return
  if (Date.now() < refused || !sit()) { await poll(); later(2000); return }
  const names = asked()
  if (stream && names === current) return
  stream?.abort()
  const mine = stream = new AbortController()
  current = names
  if (!cluster.value) poll() // a stream says how things stand after a second only
  let watchdog
  const alive = () => {
    clearTimeout(watchdog)
    watchdog = setTimeout(() => mine.abort(), 10e3) // there is a frame every second
  }
  try {
    alive()
    const res = await fetch(address('/events', { topics: names, namespace: who.value.namespace ||
      '*' }), { headers: headers(), signal: mine.signal,
      credentials: 'omit', cache: 'no-store' })
    if (res.status === 401) { locked.value = await res.json(); return }
    if (!res.ok) throw Object.assign(new Error('no stream'), { status: res.status })
    let event = '', data = ''
    for await (const line of lines(res.body)) {
      alive()
      if (line.startsWith('event:')) event = line.slice(6).trim()
      else if (line.startsWith('data:')) data += line.slice(5)
      else if (line === '' && event) {
        frame(event, data ? JSON.parse(data) : {})
        event = data = ''
      }
    }
  } catch (e) {
    if (mine !== stream) return
    if (e.status === 404 || e.status === 403) { unsupported = e.status; refused = Date.now() + 30e3 }
  } finally {
    clearTimeout(watchdog)
  }
  if (mine !== stream) return // another took its place
  stream = null
  failures++
  await poll()
  if (wanted && !stream) later(Math.min(5000, 400 * 2 ** failures))
}
// A node that has no stream for the caller is not asked for one all the time.
let unsupported = 0, refused = 0

function frame(event, data) {
  failures = 0
  heard = Date.now()
  batch(() => {
    link.value = 'live'
    switch (event) {
      case 'hello':
        node.value = { id: data.node, version: data.version }
        // What happened between two streams was not said: look at everything once.
        for (const t of topics.keys()) tell(t)
        break
      case 'stats':
        stats.value = data
        if (who.value?.namespace) leaderless.value = false // nothing else says so: each read finds out
        recent.value = [...recent.value.slice(-99), data]
        tell('stats')
        break
      case 'cluster':
        setCluster(data)
        break
      case 'job': tell('job:' + data.id); break
      case 'runs': case 'dead': tell(event); break
      case 'bye': if (data.reason === 'token_revoked') locked.value = { detail: 'The token was revoked.' }
    }
  })
}

function setCluster(c) {
  cluster.value = c
  leaderless.value = !c.leader
  tell('cluster')
}

/** Without a stream the status says most of it. A token for one namespace may read neither. */
async function poll() {
  const bounded = unsupported === 403 || who.value?.namespace
  try {
    const s = await get(bounded ? '/whoami' : '/status', bounded ? {} : { stale: true },
      { abort: AbortSignal.timeout(5000) })
    heard = Date.now()
    batch(() => {
      if (!stream || link.value !== 'live') link.value = 'poll'
      for (const t of topics.keys()) tell(t)
      if (bounded) { leaderless.value = false; return } // nothing says when there is one again: each read finds out
      heardNow(s.now)
      node.value = { id: s.node, version: s.version }
      const slots = s.workers.reduce((n, w) => n + w.slots, 0)
      stats.value = { ...stats.value, running: s.workers.reduce((n, w) => n + w.busy, 0), slots, backlog: s.backlog,
        backlog_more: s.backlog_more, dead: s.dead_letters, jobs: s.jobs }
      setCluster({ leader: s.leader, term: s.term, ready: s.ready, troubles: s.troubles?.length ?? 0,
        members: s.members.map((m) => ({ id: m.id, address: m.address, role: m.leader ? 'leader' : m.suffrage,
          alive: m.state ? m.state !== 'unreachable' : true })) })
    })
  } catch (e) {
    if (e.code === 'unreachable') link.value = 'gone'
    else if (e.status !== 401) link.value = 'poll'
  }
}

function stop() {
  clearTimeout(timer)
  stream?.abort()
  stream = null
  if (seat) try { localStorage.removeItem(seat) } catch { /* it ends by itself */ }
  seat = null
}

effect(() => {
  const on = who.value !== null && locked.value === null
  if (on === wanted) return
  wanted = on
  if (on) { unsupported = refused = 0; later(0) } else { stop(); link.value = 'connecting' }
})
document.addEventListener('visibilitychange', () => document.hidden ? stop() : later(0))
addEventListener('pagehide', stop)
addEventListener('pageshow', (e) => { if (e.persisted) later(0) })
