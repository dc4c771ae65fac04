// Small parts that every view uses.
import { html, signal, useEffect, useLayoutEffect, useRef, useState } from '../ui.js'
import { leaderless, may } from '../api.js'
import { turns } from '../data.js'
import { guard, toMain } from '../router.js'
import { lost } from '../time.js'
import { Icon } from './icons.js'

/** A part of a view, left out if the node does not know its question (`of`). */
export const Panel = ({ title, aside, actions, className, children, of }) => of?.error?.absent ? null :
  html`<section class=${'panel ' + (className ?? '')}>
  ${(title || actions) && html`<header>${title && html`<h2>${title}${aside &&
    html` <span class="aside">${aside}</span>`}</h2>`}${actions}</header>`}
  ${children}</section>`

export const Title = ({ title, sub, crumbs, actions }) => {
  useEffect(() => { document.title = (typeof title === 'string' ? title : crumbs?.at(-1)?.[0] ??
    'Carillon') + ' · Carillon' }, [title])
  return html`<div class="title"><div>
    ${crumbs && html`<nav class="crumbs" aria-label="Breadcrumb">${crumbs.map(([text, href], i) =>
      html`${i ? ' / ' : ''}<a href=${href}>${text}</a>`)}</nav>`}
    <h1 class="wrap">${title}</h1>${sub && html`<p>${sub}</p>`}</div>${actions &&
      html`<div class="actions">${actions}</div>`}</div>`
}

/** What keeps the caller from changing anything now, if something does. */
export const off = (role = 'operator') => !may(role) ? `This needs a token with the role ${role}.` :
  lost.value || leaderless.value ? `There is no ${lost.value ? 'answer' : 'leader'}: nothing can be changed now.` : ''

/** A button that changes something: off without the role or a leader, or for a reason of its own (not). */
export function Act({ role, onClick, children, className, title, disabled, not, ...rest }) {
  const [busy, setBusy] = useState(false), used = useRef(false)
  const why = off(role) || not
  useEffect(() => () => { if (used.current && document.activeElement === document.body) toMain() }, [])
  const click = async (e) => {
    if (busy) return
    setBusy(used.current = true)
    try { await onClick(e) } finally { setBusy(false) }
  }
  return html`<button type="button" class=${'button ' + (className ?? '')} disabled=${!!(disabled || why)}
    aria-disabled=${busy} aria-busy=${busy} title=${why || title} onClick=${click} ...${rest}>${children}</button>`
}

export const ActLink = ({ href, className = '', children }) => off() ?
  html`<${Act} className=${className}>${children}<//>` :
  html`<a class=${'button ' + className} href=${href}>${children}</a>`

/** A text of the API, in which commands stand between backquotes. Who reads it here has buttons, not calls. */
export const Rich = ({ text }) => (text ?? '').replace(/POST \S+:resume/, 'press Resume')
  .replace(/^(GET|PUT|POST) \/api.*/, '').split('`').map((part, i) => i % 2 ? html`<code>${part}</code>` : part)

export function Load({ of, bones = 4, empty, children, what }) {
  const { data, error, slow, dim, reload } = of
  if (data !== null) {
    const none = empty && empty.when(data)
    return html`<div class=${dim ? 'dim' : ''} aria-busy=${dim}>
      ${error && !lost.value && html`<${Failure} error=${error} retry=${reload} inline what=${what}/>`}
        ${none ? html`<${Empty} ...${empty}/>` : children(data)}</div>`
  }
  // That the node does not answer is said once, by the frame.
  if (lost.value && error) return html`<${Empty} title="Not loaded" text="It will load when the node is back."/>`
  if (error) return html`<${Failure} error=${error} retry=${reload} what=${what}/>`
  return slow ? html`<div class="body" role="status"><span class="sr">Loading</span><${Bones} n=${bones}/></div>` :
    html`<div class="body" aria-busy="true"></div>`
}
const widths = [72, 94, 58, 83, 66, 90, 77, 61]
export const Bones = ({ n }) => html`<div class="stack">${Array.from({ length: n }, (_, i) =>
  html`<div class="bone" style=${{ width: widths[i % 8] + '%' }}></div>`)}</div>`

export function Failure({ error, retry, inline, what }) {
  if (error.absent) return html`<div class="state"><${Icon} name="info"/><h3>
    ${what ?? 'This'} is not on this version</h3>
    <p>This node's version of Carillon does not have it. Everything else works.</p></div>`
  if (inline) return html`<div class="banner warn" role="alert"><${Icon} name="triangle"/><div class="grow"><p>
    <strong>Not up to date.</strong> ${error.detail}</p>
    ${error.remedy && html`<p><${Rich} text=${error.remedy}/></p>`}</div>
      <button class="button" onClick=${retry}>Retry</button></div>`
  const head = error.forbidden ? 'You may not see this' : error.status === 404 ? 'Not found' :
    error.code === 'unreachable' ? 'No answer' : 'That did not work'
  return html`<div class="state error" role="alert"><${Icon} name=${error.forbidden ? 'slash' : 'triangle'}/><h3>${head}
    </h3><p>${error.detail}</p>
    ${error.remedy && html`<p><${Rich} text=${error.remedy}/></p>`}${retry && !error.forbidden &&
      html`<div class="row"><button class="button" onClick=${retry}>Retry</button></div>`}</div>`
}

export const Empty = ({ icon = 'info', title, text, command, children }) =>
  html`<div class="state"><${Icon} name=${icon}/><h3>${title}</h3>
  ${text && html`<p>${text}</p>`}${command && html`<${Command} text=${command}/>`}${children}</div>`

export const Command = ({ text }) => {
  if (location.port !== '7400') text = text.replace('carillon submit', '$& --addr ' + location.host)
  return html`<div class="command"><code tabindex="0">${text}</code><${Copy} text=${text}/></div>`
}

/** The clipboard's API is there on secure origins only; a node on plain HTTP is none. */
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text)
  } catch {
    const area = document.createElement('textarea')
    area.value = text
    ;(document.querySelector('dialog[open]') ?? document.body).append(area)
    area.select()
    document.execCommand('copy')
    area.remove()
  }
}
export function Copy({ text, label }) {
  const [done, setDone] = useState(false)
  const click = async () => { await copy(text); setDone(true); setTimeout(() => setDone(false), 1500) }
  return html`<button type="button" class=${'button quiet' + (label ? '' : ' icon-only')} onClick=${click}
    aria-label=${label ? null : 'Copy'}>
    <${Icon} name=${done ? 'check' : 'copy'}/>${label}<span class="sr" role="status">${done ? 'Copied' : ''}</span>
      </button>`
}

// Notices
export const toasts = signal([])
let serial = 0
export function toast(text, { detail, bad, href } = {}) {
  const id = ++serial
  toasts.value = [...toasts.value.filter((t) => t.bad).slice(-2), { id, text, detail, bad, href }]
  setTimeout(() => dismiss(id), bad ? 12e3 : 5e3)
}
const dismiss = (id) => { toasts.value = toasts.value.filter((t) => t.id !== id) }
export const Toasts = () => html`<div class="toasts" role="status" aria-live="polite">
  ${toasts.value.map((t) => html`<div class="toast" key=${t.id}>
  <span class=${t.bad ? 's-failed' : 's-succeeded'}><${Icon} name=${t.bad ? 'triangle' : 'check'}/></span>
    <div class="grow wrap"><p>${t.href ? html`<a href=${t.href}>${t.text}</a>` : t.text}</p>
    ${t.detail && html`<p>${t.detail}</p>`}</div>
  <button class="button quiet icon-only" aria-label="Dismiss" onClick=${() => dismiss(t.id)}><${Icon} name="close"/>
    </button></div>`)}</div>`

/** Does something and says how it went. */
export async function attempt(what, fn) {
  try {
    const r = await fn()
    if (what) toast(what)
    return r ?? true
  } catch (e) {
    toast(e.detail ?? String(e), { detail: e.remedy, bad: true })
    return null
  }
}

const discard = () => ask({ title: 'Discard your changes?', text: 'What you typed is not saved.', yes: 'Discard',
  danger: true })
export const useUnsaved = (edited) => useLayoutEffect(() => edited ? guard(discard) : undefined, [edited])

/** A modal dialog. One with a form asks before it closes, once something was typed. */
export function Dialog({ title, wide, form, cancel = 'Cancel', onClose, children, footer }) {
  const ref = useRef(null), [edited, setEdited] = useState(false)
  const close = async () => { if (!edited || await discard()) onClose() }
  useUnsaved(edited)
  useEffect(() => {
    const d = ref.current, from = document.activeElement
    d.showModal()
    return () => { d.close(); from?.isConnected ? from.focus({ preventScroll: true }) : toMain() }
  }, [])
  // Escape is taken as a key: a browser lets a dialog refuse its cancel event once only.
  return html`<dialog ref=${ref} class=${wide ? 'wide' : ''} aria-label=${title} onInput=${() => setEdited(!!form)}
    onCancel=${(e) => { e.preventDefault(); close() }}
    onKeyDown=${(e) => { if (e.key === 'Escape') { e.preventDefault(); close() } }}>
    <header><h2>${title}</h2></header><div class="body stack">${children}</div><footer>
      <button class="button" onClick=${close}>${cancel}</button>${footer}</footer></dialog>`
}

const asked = signal(null)
/** Asks before something that cannot be taken back. With `type` the person has to write that text. */
export const ask = (o) => new Promise((resolve) => { asked.value = { ...o, resolve } })
export function Asking() {
  const q = asked.value
  const [text, setText] = useState('')
  if (!q) return null
  // It is gone before the answer is acted on: what is below a dialog takes no focus.
  const end = (v) => { asked.value = null; setText(''); setTimeout(q.resolve, 0, v) }
  return html`<${Dialog} title=${q.title} onClose=${() => end(false)} cancel=${q.danger ? 'Keep' : 'Cancel'}
    footer=${html`<button class=${'button primary' + (q.danger ? ' danger' : '')}
    disabled=${q.type && text.trim() !== String(q.type)}
      onClick=${() => end(true)}>${q.yes}</button>`}>
    <p>${q.text}</p>${q.type && html`<div class="field"><label for="ask-type">Type ${q.type} to continue</label>
      <input id="ask-type" class="input" autocomplete="off" value=${text} onInput=${(e) => setText(e.target.value)}/>
        </div>`}<//>`
}

/** One of few values, as buttons in a row. */
export const Segments = ({ value, options, onChange, label }) => html`<div class="segments" role="group"
  aria-label=${label}>
  ${options.map(([v, text]) => html`<button type="button" aria-pressed=${v === value} onClick=${() => onChange(v)}>
    ${text}</button>`)}</div>`

export const Facts = ({ rows }) => html`<dl class="facts">${rows.filter((r) => r && r[1] != null &&
  r[1] !== '').map(([k, v]) => html`<dt>${k}</dt><dd>${v}</dd>`)}</dl>`

export const Meter = ({ value, of, label, warn = .8, bad = .95 }) => {
  const part = of ? Math.min(1, value / of) : 0
  return html`<div class=${'meter' + (part >= bad ? ' bad' : part >= warn ? ' warn' : '')} role="img"
    aria-label=${label}><i style=${{ width: (part * 100).toFixed(1) + '%' }}></i></div>`
}

// The list that is pointed at holds the others too: one that grows above it would move it.
const pointed = signal(null)
/** Rows that stay under the pointer. `children` draws them. */
export function Still({ rows, id, children }) {
  const h = useRef({}).current, [, set] = useState(0), draw = () => set((n) => n + 1)
  const turn = turns.get(rows), held = pointed.value || document.activeElement?.closest('.still')
  if (!held || h.turn !== turn) { h.rows = rows; h.turn = turn }
  const leave = () => { if (pointed.value === h) pointed.value = null }
  useEffect(() => leave, [])
  useEffect(() => { // the row that had the focus is gone
    if (h.focus && document.activeElement === document.body) { h.focus = false; toMain() }
  })
  const known = new Map(rows.map((r) => [id(r), r])), kept = new Set(h.rows.map(id))
  const fresh = rows.filter((r) => !kept.has(id(r))).length
  return html`<div class="still" onPointerEnter=${(e) => { if (e.pointerType !== 'touch') pointed.value = h }}
    onPointerLeave=${leave} onFocusIn=${() => { h.focus = true }} onFocusOut=${() => setTimeout(draw)}>
    ${children(h.rows.map((r) => known.get(id(r)) ?? r), (r) => !known.has(id(r)))}
    ${fresh > 0 && html`<button type="button" class="button fresh" onClick=${() => { h.rows = rows; draw() }}>
      ${fresh} new</button>`}</div>`
}

/** A list of rows. Columns: [head, how to draw it, its width, classes]. */
export function Table({ label, cols, rows, id, selected, foot }) {
  const widths = cols.map((c) => c[2] ?? 'minmax(0, 1fr)').join(' ')
  return html`<${Still} rows=${rows} id=${id}>${(rows, gone) => html`<div class="table" role="table" aria-label=${label}
    style=${{ '--cols': widths }}><div class="thead" role="rowgroup"><div class="tr" role="row">${cols.map((c) =>
      html`<div role="columnheader" class=${'th ' + (c[3] ?? '')}>${c[0]}</div>`)}</div></div>
    <div class="tbody" role="rowgroup">${rows.map((r) => html`<div class=${'tr' + (selected?.(r) ? ' selected' : '')}
      role="row" key=${id(r)} data-row inert=${gone(r)}>
      ${cols.map((c) => html`<div role="cell" class=${'td ' + (c[3] ?? '')} data-head=${c[0]}>${c[1](r)}
        </div>`)}</div>`)}</div></div>`}<//>${foot}`
}

/** A value once it has not changed for a while. */
export function useSettled(value, ms = 250) {
  const [v, set] = useState(value)
  useEffect(() => {
    const t = setTimeout(() => set(value), ms)
    return () => clearTimeout(t)
  }, [value])
  return v
}
