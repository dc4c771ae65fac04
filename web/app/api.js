import { signal } from './ui.js'
import { namespace } from './router.js'
import { heardTime } from './time.js'

const base = '/api/v1'
const tokenKey = 'carillon.token'

/** Who the page is to the cluster; null until it is known. */
export const who = signal(null)
/** Whether a token must be asked for, and what was wrong with the last one. */
export const locked = signal(null)
/** How old the answers are, in ms, while there is no leader to ask; null: they are consistent. */
export const staleness = signal(null)

let token = ''
try { token = sessionStorage.getItem(tokenKey) ?? '' } catch { /* kept in memory then */ }
export function setToken(text) {
  token = text
  try { text ? sessionStorage.setItem(tokenKey, text) : sessionStorage.removeItem(tokenKey) } catch { /* as above */ }
}
export const hasToken = () => token !== ''

/** An answer that is an error, as RFC 9457 has it, or the lack of any. */
export class Problem extends Error {
  constructor(o) {
    super(o.detail)
    this.status = o.status ?? 0
    this.code = o.code ?? 'unreachable'
    this.detail = o.detail
    this.remedy = o.remedy ?? ''
    this.field = o.field ?? ''
  }
  /** The node that answers is of a version that does not have this yet. */
  get absent() { return this.status === 404 && /^there is (nothing at|no action)/.test(this.detail) }
  get forbidden() { return this.status === 403 }
}

export function headers(more) {
  const h = new Headers(more)
  if (token) h.set('Authorization', 'Bearer ' + token)
  return h
}

export function address(path, params = {}) {
  const q = new URLSearchParams()
  for (const [k, v] of Object.entries(params)) {
    if (v == null || v === '' || v === false) continue
    for (const one of Array.isArray(v) ? v : [v]) q.append(k, one)
  }
  const text = q.toString()
  return base + path + (text ? '?' + text : '')
}

const spaced = /^\/(jobs|runs|dead|schedule|calendars|queues|upcoming)\b/
const lists = /^\/(jobs|runs|dead|calendars|queues|upcoming|dead:groups|runs:summary|upcoming:load)$/

function withSpace(path, params) {
  if (!spaced.test(path) || 'namespace' in params) return params
  const ns = namespace()
  return ns && (ns !== '*' || lists.test(path)) ? { ...params, namespace: ns } : params
}

/** JSON with numbers that a double does not hold. */
export const parse = (text) => JSON.parse(text, /\d[\d.]{15}|\d[eE]/.test(text) ? (_, v, at) =>
  typeof v === 'number' && at && String(v) !== at.source ? JSON.rawJSON(at.source) : v : null)

async function call(method, path, params, init) {
  let res
  const sent = Date.now()
  try {
    res = await fetch(address(path, withSpace(path, params)), { method, credentials: 'omit', cache: 'no-store',
      ...init })
  } catch (e) {
    if (e.name === 'AbortError') throw e
    throw new Problem({ detail: 'This node did not answer.', remedy: 'Check that it runs, or open another node.' })
  }
  heardTime(res.headers.get('Date'), sent, Date.now())
  if (res.ok) return res
  let body = {}
  try { body = await res.json() } catch { /* not from a node: a proxy in between */ }
  const p = new Problem({ status: res.status, code: body.code, detail: body.detail ?? `${res.status} ${res.statusText}`,
    remedy: body.remedy, field: body.field })
  if (res.status === 401) locked.value = p
  throw p
}

/** Whether reads should not wait for a leader; live.js says so. */
export const leaderless = signal(false)

export async function get(path, params = {}, { abort } = {}) {
  const init = { headers: headers(), signal: abort }
  const read = async (stale) => {
    const res = await call('GET', path, stale ? { ...params, stale: true } : params, init)
    const age = res.headers.get('Carillon-Stale-Ms')
    staleness.value = stale && leaderless.value ? Number(age ?? 0) : null
    return parse(await res.text())
  }
  if (leaderless.value && path !== '/whoami') return read(true)
  try {
    return await read(false)
  } catch (e) {
    if (e.code !== 'no_leader' && e.code !== 'not_ready') throw e
    leaderless.value = true
    return read(true)
  }
}

/** A key under which a change is done once, however often it is sent. randomUUID is there on secure origins only. */
export const newKey = () => 'ui-' + Array.from(crypto.getRandomValues(new Uint8Array(12)), (b) =>
  b.toString(16).padStart(2, '0')).join('')

const again = new Set(['outcome_unknown', 'no_leader', 'not_ready', 'unreachable', 'too_many_requests'])
const pause = (ms) => new Promise((r) => setTimeout(r, ms))

/** Changes. What may or may not have been done is repeated under the same key, which answers with the first outcome. */
export async function send(method, path, { body, params = {}, key = newKey(), ifMatch, type, abort } = {}) {
  const h = headers({ 'Idempotency-Key': key })
  if (body !== undefined) h.set('Content-Type', type ?? 'application/json')
  if (ifMatch) h.set('If-Match', ifMatch)
  for (let tries = 0; ; tries++) {
    try {
      const res = await call(method, path, params, { headers: h, body: body === undefined ? undefined :
        JSON.stringify(body), signal: abort })
      if (res.status === 204) return null
      const text = await res.text()
      return text ? parse(text) : null
    } catch (e) {
      if (!again.has(e.code) || tries >= 5) throw e
      await pause(300 * 2 ** tries)
    }
  }
}

export async function sendLines(path, body, tell, { abort, key = newKey(), params = {} } = {}) {
  const res = await call('POST', path, params, { headers: headers({ 'Content-Type': 'application/json',
    'Idempotency-Key': key }),
    body: JSON.stringify(body), signal: abort })
  for await (const line of lines(res.body)) if (line) tell(JSON.parse(line))
}

export async function* lines(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader()
  let rest = ''
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) { if (rest) yield rest; return }
      const parts = (rest + value).split('\n')
      rest = parts.pop()
      yield* parts
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}

const rank = { viewer: 1, operator: 2, admin: 3 }
/** Whether the caller has a role; what it may not do is shown and is off. */
export const may = (role) => (rank[who.value?.role] ?? 0) >= rank[role]

/** Asks who the caller is. Without a token where one is needed, locked says so. */
export async function identify() {
  try {
    who.value = await get('/whoami')
    locked.value = null
  } catch (e) {
    if (e.status !== 401) throw e
    who.value = null
  }
}
