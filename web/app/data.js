// Loading: a question, its answer, and what is between them.
import { effect, useEffect, useRef, useState } from './ui.js'
import { link, watch } from './live.js'
import { lost } from './time.js'

/** Which question a list answers: rows of the same one stay where they are while they are pointed at. */
export const turns = new WeakMap()

/** Asks, and asks again when a topic says so, or by the time alone what ages: no topic tells that nothing ran. */
export function useData(load, deps, { topics = [], every = 0, ages } = {}) {
  const [state, set] = useState({ data: null, error: null, slow: false, dim: false })
  const box = useRef(null)
  box.current ??= { deps: null, run: null, load }
  box.current.load = load
  useEffect(() => {
    const b = box.current
    let ended = false, busy = false, again = false, absent = false, failed = false, abort = null, timer = null, last = 0
    const run = async (fresh) => {
      if (ended) return
      if (busy) { again = true; if (!fresh) return; abort?.abort() }
      busy = true
      last = Date.now()
      const mine = abort = new AbortController()
      const slow = fresh && setTimeout(() => !ended && mine === abort &&
        set((s) => s.data === null ? { ...s, slow: true } : { ...s, dim: true }), 150)
      try {
        const data = await b.load(mine.signal)
        failed = false
        for (const list of Object.values(data ?? {})) if (Array.isArray(list)) turns.set(list, run)
        if (!ended && mine === abort) set({ data, error: null, slow: false, dim: false })
      } catch (error) {
        absent = error.absent === true // it will not come by asking
        failed = true
        if (!ended && mine === abort && error.name !== 'AbortError') set((s) =>
          ({ ...s, error, slow: false, dim: false, data: fresh && s.dim ? null : s.data }))
      }
      clearTimeout(slow)
      if (mine !== abort) return
      busy = false
      if (again && !ended) { again = false; hint() }
    }
    const hint = () => {
      if (ended || absent || document.hidden) return
      clearTimeout(timer)
      timer = setTimeout(() => run(false), Math.max(0, last + 900 - Date.now()))
    }
    b.run = () => run(true)
    run(true)
    const stops = topics.map((t) => watch(t, hint)).concat(effect(() => { if (!lost.value && failed) hint() }))
    const tick = every && setInterval(() => { if (!document.hidden && (ages || link.value !== 'live' ||
      !topics.length)) hint() }, every)
    return () => {
      ended = true
      abort?.abort()
      clearTimeout(timer)
      clearInterval(tick)
      for (const stop of stops) stop()
    }
  }, [...deps, topics.join()])
  return { ...state, reload: () => { set((s) => ({ ...s, error: null })); box.current.run() } }
}

/** Reads a page of a list. A search may answer with nothing and go on: after a while the person decides whether. */
export async function collect(ask, field, want, cursor, tell) {
  const rows = []
  let page, scanned = 0
  for (let asked = 0; asked < 25; asked++) {
    page = await ask(cursor, want - rows.length)
    rows.push(...page[field])
    scanned += page.scanned ?? 0
    cursor = page.next_cursor
    if (!cursor || rows.length >= want) break
    tell?.({ scanned, total: page.total, found: rows.length })
  }
  return { rows, next: cursor ?? '', scanned, total: page.total, searched: page.scanned != null }
}
