// A cell for each occurrence that the schedule promised, past and next. On a canvas: 1,440 elements cost five times as
// much.
import { html, useEffect, useMemo, useRef, useState } from '../ui.js'
import { color, theme } from '../look.js'
import { clock, count, duration, now, second, Time } from '../time.js'
import { go, toRun } from '../router.js'
import { fates, Icon, Status } from './icons.js'

const height = 76, widest = 24 // of a cell
const louder = (a, b) => (fates[b]?.loud ?? 0) > (fates[a]?.loud ?? 0) ? b : a
// How many of which fate a cell has, and the one that it is drawn as.
const parts = (o) => Object.entries(o.fates ?? { [o.fate]: o.count ?? 1 })
const seen = (o) => o.fates ? Object.keys(o.fates).reduce(louder) : o.fate

export function Strip({ occurrences, zone, job }) {
  const canvas = useRef(null), [at, setAt] = useState(-1), [width, setWidth] = useState(0)
  const list = occurrences, n = list.length
  useEffect(() => {
    const size = new ResizeObserver(([e]) => setWidth(Math.floor(e.contentRect.width)))
    size.observe(canvas.current)
    return () => size.disconnect()
  }, [])
  // What was to come when it was asked for is to come until it is asked for again.
  const nowAt = useMemo(() => { const t = now(); return list.findIndex((o) => Date.parse(o.scheduled_at) > t ||
    o.fate === 'upcoming') }, [list, second.value])
  const used = Math.min(width, n * widest)
  useEffect(() => {
    const c = canvas.current, scale = devicePixelRatio || 1
    if (!width || !c) return
    c.width = width * scale
    c.height = height * scale
    const g = c.getContext('2d')
    g.scale(scale, scale)
    g.clearRect(0, 0, width, height)
    // Where there are more occurrences than pixels, the loudest of a pixel is what is seen.
    const cells = Math.min(n, Math.floor(width / 3)), w = used / cells, gap = w > 5 ? 1.5 : w > 3 ? 1 : .5
    g.fillStyle = color('surface-2')
    g.fillRect(0, height - 1, width, 1)
    const drawn = [], again = []
    for (let i = 0; i < n; i++) {
      const k = Math.floor(i * cells / n)
      again[k] ||= list[i].redriven
      drawn[k] = drawn[k] ? louder(drawn[k], seen(list[i])) : seen(list[i])
    }
    for (let k = 0; k < cells; k++) {
      const f = fates[drawn[k]] ?? fates.waiting, h = f.bar * (height - 14), x = k * w
      if (drawn[k] === 'upcoming') {
        g.strokeStyle = color('border-strong')
        g.lineWidth = 1
        if (w > 4) g.strokeRect(x + .5, height - h - .5, Math.max(1, w - gap - 1), h - .5)
        else { g.fillStyle = color('border-strong'); g.globalAlpha = .45;
          g.fillRect(x, height - h, Math.max(1, w - gap), h); g.globalAlpha = 1 }
        continue
      }
      g.fillStyle = color(drawn[k] === 'unaccounted' ? 'failed' : drawn[k])
      g.beginPath()
      g.roundRect(x, height - h, Math.max(1, w - gap), h, Math.min(2, w / 3))
      g.fill()
      if (again[k]) { g.fillStyle = color('dead'); g.fillRect(x, Math.max(0, height - h - 5), Math.max(1, w - gap), 3) }
      if (drawn[k] === 'unaccounted') for (let y = height - h; y < height; y += 6) { g.fillStyle = color('surface');
        g.fillRect(x, y, Math.max(1, w - gap), 2) }
    }
    if (nowAt > 0) {
      const x = nowAt / n * used
      g.fillStyle = color('text')
      g.fillRect(x - .75, 8, 1.5, height - 8)
      g.beginPath(); g.arc(x, 6, 3, 0, 7); g.fill()
    }
    if (at >= 0) {
      const x = (Math.floor(at * cells / n) + .5) * w
      g.strokeStyle = color('accent')
      g.lineWidth = 2
      g.strokeRect(x - Math.max(3, w / 2 + 1), 10, Math.max(6, w + 2), height - 11)
    }
  }, [list, width, at, nowAt, theme.value])
  const pick = (e) => {
    const r = canvas.current.getBoundingClientRect()
    setAt(Math.max(0, Math.min(n - 1, Math.floor((e.clientX - r.left) / used * n))))
  }
  const key = (e) => {
    const page = Math.max(1, Math.round(n / 10)), last = nowAt > 0 ? nowAt - 1 : n - 1, cur = at < 0 ? last : at
    const next = { ArrowRight: cur + 1, ArrowLeft: cur - 1, PageDown: cur + page, PageUp: cur - page, Home: 0,
      End: n - 1 }[e.key]
    if (next !== undefined) { e.preventDefault(); setAt(Math.max(0, Math.min(n - 1, next))) }
    else if (e.key === 'Enter' && list[cur]?.run_id) go(toRun({ ...list[cur], namespace: job?.namespace }))
  }
  const o = list[at], [first, last] = [list[0], list[n - 1]].map((x) => Date.parse(x.scheduled_at))
  const end = (t) => clock(t, zone, { seconds: last - first < 7200e3, date: last - first > 43200e3 })
  const when = (x) => clock(Date.parse(x.scheduled_at), zone) + (x.last ? ' to ' + clock(Date.parse(x.last), zone) : '')
  const say = (x) => `${when(x)}: ${parts(x).map(([f, k]) => x.count > 1 ? `${count(k)} ${f}` : f).join(', ')}${
    x.reason && x.reason !== x.fate ? ', ' + x.reason.replaceAll('_', ' ') : ''}`
  return html`<div class="strip"><canvas ref=${canvas} tabindex="0" role="slider" aria-label="Occurrences, oldest first"
    aria-valuemin="1" aria-valuemax=${n}
      aria-valuenow=${(at < 0 ? Math.max(0, nowAt - 1) : at) + 1} aria-valuetext=${say(o ??
        list[Math.max(0, nowAt - 1)] ?? list[0])}
      onPointerMove=${pick} onPointerLeave=${() => setAt(-1)} onPointerDown=${pick} onKeyDown=${key}
        onBlur=${() => setAt(-1)}
      onClick=${() => o?.run_id && go(toRun({ ...o, namespace: job?.namespace }))}></canvas>
    <div class="axis" style=${{ width: Math.min(width, Math.max(used, 260)) + 'px' }}><span>${end(first)}</span>
      <span>${zone}</span>${n > 1 && html`<span>${end(last)}</span>`}</div></div>
    <div class="readout">${o ? html`<strong>${when(o)}</strong>${parts(o).map(([f, k]) =>
      html`<${Status} of=${f} label=${o.count > 1 ? `${f} ${count(k)}` : f}/>`)}
        ${o.reason && o.reason !== o.fate && html`<span>${o.reason.replaceAll('_', ' ')}</span>`}
          ${o.attempts > 1 && html`<span>${o.attempts} attempts</span>`}${o.redriven && html`<span>redriven</span>`}
        ${o.duration_ms != null && o.fate !== 'upcoming' && html`<span class="muted">took ${duration(o.duration_ms)}
          </span>`}${o.lag_ms != null && o.started_at && html`<span class="muted">lag ${duration(o.lag_ms)}</span>`}
        <span class="muted"><${Time} at=${o.scheduled_at} zone=${zone}/></span>`
      : html`<span
        class="muted">Point at a cell, or focus the strip and use the arrow keys. Enter opens the run.</span>`}</div>
    <${Legend} list=${list}/>`
}

function Legend({ list }) {
  const n = {}
  for (const o of list) for (const [f, k] of parts(o)) n[f] = (n[f] ?? 0) + k
  return html`<div class="legend">${Object.keys(fates).filter((f) => n[f]).sort((a, b) => n[b] - n[a]).map((f) =>
    html`<span class=${'chip s-' + f}><${Icon} name=${fates[f].glyph}/>${f} ${count(n[f])}</span>`)}</div>`
}

export const Sum = ({ of }) => html`<div class="sum"><span><b>${count(of.expected)}</b>expected</span>
  <span><b>${count(of.ran)}</b>ran</span>${of.open > 0 && html`<span><b>${count(of.open)}</b>open</span>`}
  <span title="They did not run, and it is known why."><b>${count(of.explained)}</b>not run, explained</span>
  <span class=${of.unaccounted ? 'bug' : ''} title="The schedule has them, and there is no trace of them.">
    <b>${count(of.unaccounted)}</b>unaccounted
    ${of.unaccounted ? ': this is a bug in Carillon, please report it' : ''}</span></div>`

/** The last outcomes in a row of a list, oldest first. */
export const Spark = ({ last }) => html`<span class="spark" role="img"
  aria-label=${'Last outcomes, newest first: ' + last.map((l) => l.status).join(', ')}>
  ${[...last].reverse().map((l) => { const f = fates[l.status] ? l.status : 'waiting';
    return html`<i class=${'s-' + f} style=${{ height: fates[f].bar * 18 + 'px' }} title=${l.status}></i>` })}</span>`
