// Keys without a modifier, as mail and code hosts have them. Those who dictate or use a switch can turn them off.
import { signal } from './ui.js'
import { may } from './api.js'
import { go, to } from './router.js'

const key = 'carillon.keys'
let kept = true
try { kept = localStorage.getItem(key) !== 'off' } catch { /* on */ }
export const keysOn = signal(kept)
export function setKeys(on) {
  keysOn.value = on
  try { localStorage.setItem(key, on ? 'on' : 'off') } catch { /* for this visit then */ }
}
export const helpOpen = signal(false)

export const places = { o: ['Overview', '/'], j: ['Jobs', '/jobs'], r: ['Runs', '/runs'], u: ['Upcoming', '/upcoming'],
  d: ['Dead letters', '/dead'],
  q: ['Queues', '/queues'], w: ['Workers', '/workers'], k: ['Calendars', '/calendars'], c: ['Cluster', '/cluster'] }

const here = new Map() // of the view that is open
/** Gives the open view keys of its own. What it returns takes them away. */
export function bind(keys) {
  for (const [k, fn] of Object.entries(keys)) here.set(k, fn)
  return () => { for (const [k, fn] of Object.entries(keys)) if (here.get(k) === fn) here.delete(k) }
}

let pending = 0
export function move(step) {
  const rows = [...document.querySelectorAll('[data-row]')]
  if (!rows.length) return
  const at = rows.findIndex((r) => r.contains(document.activeElement))
  const next = rows[Math.max(0, Math.min(rows.length - 1, at < 0 ? 0 : at + step))]
  ;(next.querySelector('a.main') ?? next.querySelector('a, button'))?.focus()
  next.scrollIntoView({ block: 'nearest' })
}

document.addEventListener('keydown', (e) => {
  if (!keysOn.value || e.ctrlKey || e.metaKey || e.altKey || e.defaultPrevented) return
  const el = e.target
  if (el instanceof Element && (el.isContentEditable ||
    el.closest('input:not([type=checkbox], [type=range]), textarea, select, dialog[open]'))) return
  const now = Date.now()
  if (pending > now && places[e.key]) {
    pending = 0
    e.preventDefault()
    go(to(places[e.key][1]))
    return
  }
  pending = 0
  const own = here.get(e.key)
  if (own) { e.preventDefault(); own(e); return }
  switch (e.key) {
    case 'g': pending = now + 1200; break
    case '/': {
      const find = document.querySelector('#find')
      if (find) { e.preventDefault(); find.focus(); find.select?.() }
      break
    }
    case '?': e.preventDefault(); helpOpen.value = true; break
    case 'j': move(1); break
    case 'k': move(-1); break
    case 'x': document.activeElement?.closest('[data-row]')?.querySelector('input[type=checkbox]')?.click(); break
    case 'n': if (may('operator')) go(to('/jobs/new')); break
    case 't': import('./look.js').then((m) => m.flip()); break
  }
})
