// Times by the cluster's clock: a browser whose own is wrong shows the same.
import { html, signal } from './ui.js'

let offset = 0, sure = Infinity
/** Takes the Date of an answer, which is good to a second; the answer that came fastest says it best. */
export function heardTime(date, sent, got) {
  const at = Date.parse(date)
  if (!at || sure < 900) return
  const doubt = 500 + (got - sent) / 2
  if (doubt < sure || Math.abs(at + 500 - (sent + got) / 2 - offset) > 5000) {
    offset = Math.abs(at + 500 - (sent + got) / 2) < 2000 ? 0 : at + 500 - (sent + got) / 2
    sure = doubt
  }
}
/** Takes a time that the node says it is now, to the millisecond. */
export function heardNow(text) {
  const at = Date.parse(text)
  if (!at) return
  const off = at - Date.now()
  offset = Math.abs(off) < 400 ? 0 : off
  sure = 0
}
/** When the node was last heard, while it does not answer; 0: it does. What is seen then is as old as that. */
export const lost = signal(0)
/** Now. It stands still while nothing is heard: an occurrence that is only not known of is not late. */
export const now = () => (lost.value || Date.now()) + offset

/** They change while the page is looked at, and have what shows ages drawn again. */
export const second = signal(0), tenSeconds = signal(0)
let n = 0
setInterval(() => {
  if (document.hidden) return
  second.value++
  if (++n % 10 === 0) tenSeconds.value++
}, 1000)

const units = [[86400e3, 'd'], [3600e3, 'h'], [60e3, 'min'], [1e3, 's']]
/** "3 min", "2 h 5 min" and the like; below a second it is "now". */
export function span(ms) {
  ms = Math.abs(ms)
  for (let i = 0; i < units.length; i++) {
    const [size, name] = units[i]
    if (ms < size) continue
    const whole = Math.floor(ms / size), next = units[i + 1]
    const part = next && whole < 10 && next[0] >= 60e3 ? Math.floor((ms % size) / next[0]) : 0
    return `${whole} ${name}` + (part ? ` ${part} ${next[1]}` : '')
  }
  return ''
}
export function relative(at) {
  const diff = at - now()
  const text = span(diff)
  return !text ? 'now' : diff > 0 ? 'in ' + text : text + ' ago'
}

/** A duration as people write it: 12 ms, 1.4 s, 2 min 5 s. */
export function duration(ms) {
  if (ms == null) return '–'
  if (ms < 1000) return `${Math.round(ms)} ms`
  if (ms < 10e3) return `${(ms / 1000).toFixed(1)} s`
  if (ms < 60e3) return `${Math.round(ms / 1000)} s`
  const s = Math.round(ms / 1000), parts = [[86400, 'd'], [3600, 'h'], [60, 'min'], [1, 's']]
  const out = []
  let rest = s
  for (const [size, name] of parts) {
    const k = Math.floor(rest / size)
    if (k && out.length < 2) out.push(`${k} ${name}`)
    rest -= k * size
  }
  return out.join(' ')
}

const formats = new Map()
export function clock(at, zone, { seconds = true, date = true, year = false, ms = false } = {}) {
  const key = [zone, seconds, date, year, ms].join()
  let f = formats.get(key)
  if (!f) {
    const o = { timeZone: zone, hour: '2-digit', minute: '2-digit', hourCycle: 'h23' }
    if (seconds) o.second = '2-digit'
    if (ms) o.fractionalSecondDigits = 3
    if (date) Object.assign(o, { weekday: 'short', day: 'numeric', month: 'short' })
    if (year) o.year = 'numeric'
    try { f = new Intl.DateTimeFormat('en-GB', o) } catch { f = new Intl.DateTimeFormat('en-GB',
      { ...o, timeZone: 'UTC' }) }
    formats.set(key, f)
  }
  return f.format(at)
}
export const localZone = Intl.DateTimeFormat().resolvedOptions().timeZone || 'UTC'

/** A text of the API with the instants in it as wall clocks: it says them in UTC, to the millisecond. */
export const said = (text, zone) => text?.replace(/\d{4}-\d\d-\d\dT[\d:.]+Z/g, (at) =>
  clock(Date.parse(at), zone, { year: true }))

export function instants(at, zone) {
  const full = { year: true, ms: true }
  const out = [`${clock(at, 'UTC', full)} UTC`]
  if (localZone !== 'UTC') out.push(`${clock(at, localZone, full)} ${localZone} (here)`)
  if (zone && zone !== 'UTC' && zone !== localZone) out.unshift(`${clock(at, zone, full)} ${zone} (job)`)
  return out.join('\n')
}

export function Time({ at, zone, none = '–' }) {
  const t = typeof at === 'number' ? at : Date.parse(at)
  if (!at || !t) return html`<span class="muted">${none}</span>`
  Math.abs(t - now()) < 120e3 ? second.value : tenSeconds.value
  return html`<time datetime=${new Date(t).toISOString()} title=${instants(t, zone)}>${relative(t)}</time>`
}
/** When something is due; what should have begun already says since when. */
export function Due({ at, zone }) {
  const t = Date.parse(at)
  if (!t) return html`<span class="muted">–</span>`
  second.value
  return t > now() - 3000 ? html`<${Time} at=${at} zone=${zone}/>` : html`<time class="s-missed" datetime=${at}
    title=${instants(t, zone)}>due ${span(now() - t)}</time>`
}
export function Clock({ at, zone = localZone, ...how }) {
  const t = typeof at === 'number' ? at : Date.parse(at)
  if (!at || !t) return html`<span class="muted">–</span>`
  return html`<time datetime=${new Date(t).toISOString()} title=${instants(t, zone)}>${clock(t, zone, how)}</time>`
}

export const count = (n) => n == null ? '–' : n.toLocaleString('en')
export function bytes(n) {
  if (n == null) return '–'
  const names = ['B', 'KB', 'MB', 'GB', 'TB']
  let i = 0
  while (n >= 1000 && i < 4) { n /= 1000; i++ }
  return `${n < 10 && i ? n.toFixed(1) : Math.round(n)} ${names[i]}`
}
