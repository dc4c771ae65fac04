// Drawn on a grid of 16. A status always goes with its glyph: colours alone do not tell skipped from lost.
import { html } from '../ui.js'

const paths = {
  // statuses
  check: 'M3 8.5l3.2 3.2L13 4.8', cross: 'M4 4l8 8M12 4l-8 8', play: 'M5 3.2v9.6l7.5-4.8z',
    clock: 'M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6zM8 4.8V8l2.2 1.6',
  octagon: 'M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5z', chevrons: 'M3.5 4l4 4-4 4M8.5 4l4 4-4 4',
    triangle: 'M8 2.5l6 10.8H2zM8 6.5v3.2M8 11.4v.1',
  bars: 'M5.5 3v10M10.5 3v10',
    crescent: 'M12.8 9.6A5.5 5.5 0 1 1 6.4 3.2a4.5 4.5 0 0 0 6.4 6.4z',
    hourglass: 'M4 2h8M4 14h8M5 2v2.5L8 8l3-3.5V2M5 14v-2.5L8 8l3 3.5V14',
  question: 'M5.5 6a2.5 2.5 0 1 1 3.6 2.3c-.7.4-1.1.8-1.1 1.7M8 12.6v.1',
    slash: 'M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6zM4 12L12 4',
  circle: 'M8 3.5a4.5 4.5 0 1 0 0 9a4.5 4.5 0 0 0 0-9z',
    retry: 'M13 3.5v3h-3M3 12.5v-3h3M12.6 6.5A5 5 0 0 0 4 5.2M3.4 9.5A5 5 0 0 0 12 10.8',
  // places
  overview: 'M2.5 8.5h3.5v5H2.5zM10 2.5h3.5v11H10zM6.25 5.5h3.5v8h-3.5z',
    jobs: 'M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.1M2.5 8h.1M2.5 12h.1', runs: 'M3.5 3v10l9-5z',
  upcoming: 'M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.2V5M10.5 2.2V5',
    dead: 'M5.5 2h5L14 5.5v5L10.5 14h-5L2 10.5v-5zM6 6l4 4M10 6l-4 4',
    queues: 'M2.5 3.5h11v2.5h-11zM2.5 10h11v2.5h-11z',
  workers: 'M3 5.5h10v7H3zM6 5.5V3.5h4v2M3 8.8h10',
    calendars: 'M2.5 4h11v9.5h-11zM2.5 7h11M5.5 2.2V5M10.5 2.2V5M6.5 9.5l3 2.5' +
      'M9.5 9.5l-3 2.5',
    cluster: 'M8 2.5a1.7 1.7 0 1 0 0 3.4a1.7 1.7 0 0 0 0-3.4zM3.7 10' +
      'a1.7 1.7 0 1 0 0 3.4a1.7 1.7 0 0 0 0-3.4zM12.3 10a1.7 1.7 0 1 0 0 3.4' +
        'a1.7 1.7 0 0 0 0-3.4zM7.1 5.6L4.6 10.2M8.9 5.6l2.5 4.6M5.4 11.7h5.2',
  bell: 'M8 2.5a1 1 0 0 1 1 1v.3c1.9.4 3 2 3 4v2.6l1.2 1.8H2.8L4 10.4V7.8' +
      'c0-2 1.1-3.6 3-4v-.3a1 1 0 0 1 1-1zM6.5 13.5h3',
  // things to do
  search: 'M7 2.8a4.2 4.2 0 1 0 0 8.4a4.2 4.2 0 0 0 0-8.4zM10.2 10.2l3.3 3.3',
    light: 'M8 5.2a2.8 2.8 0 1 0 0 5.6a2.8 2.8 0 0 0 0-5.6zM8 1.5v1.2' +
      'M8 13.3v1.2M1.5 8h1.2M13.3 8h1.2M3.4 3.4l.9.9M11.7 11.7l.9.9' +
        'M12.6 3.4l-.9.9M4.3 11.7l-.9.9',
  dark: 'M12.8 9.6A5.5 5.5 0 1 1 6.4 3.2a4.5 4.5 0 0 0 6.4 6.4z', plus: 'M8 3v10M3 8h10',
    copy: 'M5.5 5.5h8v8h-8zM3 10.5H2.5v-8h8V3', menu: 'M2.5 4.5h11M2.5 8h11M2.5 11.5h11',
    keyboard: 'M1.8 4h12.4v8H1.8zM4.3 6.6h.1M6.8 6.6h.1M9.2 6.6h.1M11.7 6.6h.1M5 9.5h6',
  crown: 'M2.5 12.5h11M2.5 10.5L2 4.5l3.5 2.7L8 3.2l2.5 4L14 4.5l-.5 6z',
    info: 'M8 2.2a5.8 5.8 0 1 0 0 11.6a5.8 5.8 0 0 0 0-11.6zM8 7.5v3.3M8 5.2v.1',
    close: 'M4 4l8 8M12 4l-8 8', left: 'M10 3.5L5.5 8l4.5 4.5', right: 'M6 3.5L10.5 8L6 12.5',
    edit: 'M3 13l.6-2.8L11 2.8l2.2 2.2l-7.4 7.4z',
    trash: 'M3 4.5h10M6.5 4.5V3h3v1.5M4.5 4.5l.6 9h5.8l.6-9', bolt: 'M9 2L3.5 9H8l-1 5l5.5-7H8z',
    system: 'M8 2.5a5.5 5.5 0 1 0 0 11a5.5 5.5 0 0 0 0-11zM8 2.5v11M8 6h4.5M8 10h4.5',
    exit: 'M6 2.5H3v11h3M7 8h6.5M11 5.5L13.5 8L11 10.5',
}
const solid = new Set(['play', 'octagon', 'runs'])

export const Icon = ({ name, title }) => html`<svg class=${'icon' + (solid.has(name) && name !== 'runs' ? ' solid' :
  '')} viewBox="0 0 16 16"
  aria-hidden=${title ? null : 'true'} role=${title ? 'img' : null} aria-label=${title ?? null}>
    <path d=${paths[name] ?? ''}/></svg>`

const bell = 'M12 4.5a1.2 1.2 0 0 1 1.2 1.2v.5c2.3.5 3.8 2.5 3.8 5v3.3l1.4 2.2H5.6L7 14.5v-3.3c0-2.5 1.5-4.5 3.8-5' +
  'v-.5A1.2 1.2 0 0 1 12 4.5Zm-2 13.4h4a2 2 0 0 1-4 0Z'
export const Bell = () => html`<svg viewBox="0 0 24 24" aria-hidden="true">
  <rect width="24" height="24" rx="6" fill="currentColor"/><path d=${bell} fill="var(--bg)"/></svg>`

/** What each fate of an occurrence looks like: colour, glyph, height of its bar, and how loud it is. */
export const fates = {
  succeeded: { glyph: 'check', bar: .45, loud: 1 },
  upcoming: { glyph: 'circle', bar: .22, loud: 0 },
  waiting: { glyph: 'clock', bar: .3, loud: 2 },
  blackout: { glyph: 'crescent', bar: .15, loud: 3 },
  paused: { glyph: 'bars', bar: .3, loud: 4 },
  canceled: { glyph: 'slash', bar: .3, loud: 5 },
  skipped: { glyph: 'chevrons', bar: .3, loud: 6 },
  running: { glyph: 'play', bar: .7, loud: 7 },
  expired: { glyph: 'hourglass', bar: .85, loud: 8 },
  missed: { glyph: 'triangle', bar: .85, loud: 9 },
  failed: { glyph: 'cross', bar: 1, loud: 10 },
  lost: { glyph: 'question', bar: 1, loud: 11 },
  dead: { glyph: 'octagon', bar: 1, loud: 12 },
  unaccounted: { glyph: 'question', bar: 1, loud: 13 },
}
const states = {
  pending: ['waiting', 'clock'], claimed: ['running', 'play'], retrying: ['failed', 'retry'],
    canceling: ['canceled', 'slash'],
  scheduled: ['waiting', 'clock'], active: ['waiting', 'clock'], completed: ['succeeded', 'check'],
    quarantined: ['missed', 'triangle'], failing: ['failed', 'cross'], manual: ['waiting', 'hand'],
}
/** The fate that a status is drawn as. Occurrences that did not run for a pause or a blackout look like that. */
export const fateOf = (status, reason) => reason === 'paused' || reason === 'blackout' ? reason : states[status]?.[0] ??
  (fates[status] ? status : 'waiting')

export function Status({ of, reason, label }) {
  if (!of) return html`<span class="muted">–</span>`
  const fate = fateOf(of, reason)
  const text = label ?? (fate === reason ? reason : of)
  return html`<span class=${'chip s-' + fate}><${Icon} name=${fate === reason ? fates[fate].glyph : states[of]?.[1] ??
    fates[fate].glyph}/>${text}</span>`
}
