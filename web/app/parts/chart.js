// Charts over time. uPlot is loaded where there is one; a table says the same to those who do not see it.
import { html, useEffect, useRef } from '../ui.js'
import { color, theme } from '../look.js'
import { clock, localZone } from '../time.js'

let loading = null
const library = () => (loading ??= import('../../vendor/uplot.js').then((m) => m.default))

/** The value below which a part of a histogram lies; null of an empty one. */
export function quantile(counts, bounds, q) {
  let all = 0
  for (const n of counts) all += n
  if (!all) return null
  let seen = 0
  for (let i = 0; i < counts.length; i++) {
    seen += counts[i]
    if (seen >= q * all) return bounds[Math.min(i, bounds.length - 1)]
  }
  return bounds.at(-1)
}

/**
 * Series: {label, color (a token), values}. Stacked ones are bars, the last at the bottom.
 */
export function Chart({ times, series, stacked, log, format = String, label, height = 170 }) {
  const box = useRef(null), plot = useRef(null), raw = useRef(null)
  raw.current = series
  const data = [times, ...pile(series, stacked)]
  useEffect(() => {
    let ended = false, seen = null
    library().then((uPlot) => {
      if (ended || !box.current) return
      const axis = { stroke: color('text-2'), grid: { stroke: color('border'), width: 1 }, ticks: { show: false },
        font: '11px system-ui', gap: 4 }
      const order = series.map((_, i) => i)
      // Of a logarithm the powers of ten: nine lines between them say nothing more.
      const tens = (u, ticks) => ticks.map((v) => log && Math.log10(v) % 1 ? null : v)
      plot.current = new uPlot({
        width: box.current.clientWidth - 24, height, padding: [8, 16, 0, 0], legend: { live: true },
          cursor: { y: false, drag: { x: false, y: false }, points: { show: !stacked } },
        scales: { y: log ? { distr: 3, range: (u, lo, hi) => [1, Math.max(10, hi ?? 10)] } :
          { range: (u, lo, hi) => [0, Math.max(1, (hi ?? 1) * 1.08)] } },
        axes: [{ ...axis, grid: { show: false }, space: 50, size: 30, gap: 7,
          incrs: [60, 300, 600, 900, 1800, 3600, 7200, 14400, 21600],
          values: (u, ticks) => ticks.map((v) => clock(v * 1000, localZone, { date: false, seconds: false })) },
          { ...axis, grid: { ...axis.grid, filter: tens }, size: 48, filter: tens,
            values: (u, ticks) => ticks.map((v) => v == null ? '' : format(v)) }],
        // While nothing is pointed at, the legend is about the newest.
        series: [{ label: 'at', value: (u, v) => clock((v ?? u.data[0].at(-1)) * 1000, localZone, { date: false }) },
          ...order.map((i) => ({ label: series[i].label, stroke: color(series[i].color),
            width: stacked ? 0 : 3.5 - 2 * i,
            points: { show: false },
            fill: stacked ? color(series[i].color) : undefined, paths: stacked ?
              uPlot.paths.bars({ size: [.82, 40], align: 1 }) : undefined,
            value: (u, v, s, at) => {
              const of = raw.current[i].values.at(at ?? -1)
              return of == null ? '–' : format(of)
            } }))],
      }, data, box.current)
      seen = new ResizeObserver(([e]) => plot.current?.setSize({ width: Math.floor(e.contentRect.width), height }))
      seen.observe(box.current)
    })
    return () => { ended = true; seen?.disconnect(); plot.current?.destroy(); plot.current = null }
  }, [theme.value, series.map((s) => s.label).join(), stacked, log])
  useEffect(() => { plot.current?.setData(data) }, [times, series])
  const last = times.length
  return html`<div class="chart" ref=${box} role="img" aria-label=${label + '. The table below has the same figures.'}>
    ${series.every((s) => s.values.every((v) => !v)) && html`<p>No runs in this time</p>`}</div>
    <details class="data"><summary>As a table</summary><div class="scroll" tabindex="0"><table><thead><tr>
      <th scope="col">at</th>${series.map((s) => html`<th scope="col">${s.label}</th>`)}</tr></thead>
      <tbody>${times.slice(-30).map((_, k) => last - 1 - k).map((i) =>
        html`<tr><th scope="row">${clock(times[i] * 1000, localZone, { date: false })}</th>
        ${series.map((s) => html`<td>${s.values[i] == null ? '–' : format(s.values[i])}</td>`)}</tr>`)}</tbody></table>
          </div></details>`
}

// Bars are drawn over each other, so each is as high as all that stands on it: the last series is at the bottom, where
// even little of it is seen.
function pile(series, stacked) {
  if (!stacked) return series.map((s) => s.values)
  const out = []
  for (let k = series.length - 1; k >= 0; k--) out[k] = series[k].values.map((v, i) => v + (out[k + 1]?.[i] ?? 0))
  return out
}
