// How much is due, hour by hour or minute by minute.
import { html } from '../ui.js'
import { get } from '../api.js'
import { useData } from '../data.js'
import { to } from '../router.js'
import { clock, count, localZone, now } from '../time.js'
import { Load, Panel } from './bits.js'

export const iso = (t) => new Date(t).toISOString()

/** All buckets of a load: those with nothing in them are not sent. */
export function filled(d) {
  const known = new Map(d.buckets.map((b) => [Date.parse(b.at), b])), out = []
  for (let t = Date.parse(d.from), end = Date.parse(d.to); t < end; t += d.step_ms) out.push({ at: iso(t), count: 0,
    kind: t < Date.parse(d.exact_until) ? 'exact' : 'projected', ...known.get(t), t })
  return out
}

/** Occurrences by job, in the order of their first: one that is due every second must not hide all others. */
export function byJob(list) {
  const out = new Map()
  for (const o of list) {
    const had = out.get(o.job_id)
    if (had) { had.more++; had.last = o.scheduled_at } else out.set(o.job_id, { ...o, more: 0 })
  }
  return [...out.values()]
}

/** The next day in bars of fifteen minutes. */
export function Ribbon({ space }) {
  const load = useData((abort) => { const from = Math.floor(now() / 60e3) * 60e3;
    return get('/upcoming:load', { ...space, from: iso(from), to: iso(from + 86400e3), step: '1m' }, { abort }) },
    [space.namespace], { every: 60000 })
  return html`<${Panel} title="The next 24 hours" of=${load} className="after"
    actions=${html`<a class="button quiet" href=${to('/upcoming')}>By minute</a>`}><${Load} of=${load} bones=${2}>
    ${(d) => {
    const bars = []
    for (const [i, b] of filled(d).entries()) {
      const k = Math.floor(i / 15)
      bars[k] ??= { at: b.at, count: 0, peak: 0, kind: b.kind }
      bars[k].count += b.count
      bars[k].peak = Math.max(bars[k].peak, b.count)
    }
    const most = Math.max(1, ...bars.map((b) => b.peak)), busiest = bars.reduce((a, b) => b.peak > a.peak ? b : a,
      bars[0] ?? { peak: 0 })
    const total = bars.reduce((n, b) => n + b.count, 0)
    return html`<div class="ribbon" role="img"
      aria-label=${`${count(total)} occurrences in 24 hours; the busiest minute has ${count(busiest.peak)}`}>
        ${bars.map((b) => html`<i class=${b.kind} key=${b.at} style=${{
          height: Math.max(2, b.peak / most * 100) + '%' }} title=${`${clock(Date.parse(b.at), localZone,
          { seconds: false })}: ${count(b.count)}, at most ${count(b.peak)} in a minute`}></i>`)}</div>
      <div class="ribbon-axis"><span>now</span><span>
        ${count(total)} occurrences · busiest minute ${count(busiest.peak)} at ${busiest.at ?
        clock(Date.parse(busiest.at), localZone, { date: false, seconds: false }) : '–'}
        ${d.sampled && ' · estimated'}</span><span>in 24 h</span></div>`
  }}<//><//>`
}
