// A job as what people keep it as, what an edit changes, and what to do when two people made one.
import { html, useState } from '../ui.js'
import { Dialog } from './bits.js'

const said = ['job_id', 'status', 'next_run_at', 'last_run_at', 'last_run_status', 'last_success_at',
  'open_runs', 'runs_started', 'wait_reason', 'failing', 'last_notification', 'version', 'created_at', 'updated_at',
  'description']

/** What its owner wrote: without what only the cluster says. */
export const definition = (job) => Object.fromEntries(Object.entries(job).filter(([k]) => !said.includes(k)))

const holds = (v) => v && typeof v === 'object' && !JSON.isRawJSON?.(v)

const plain = /^[A-Za-z_/][A-Za-z0-9_./-]*$/
const words = new Set(['true', 'false', 'null', 'yes', 'no', 'on', 'off', 'y', 'n', '~'])
const scalar = (v) => typeof v !== 'string' ? JSON.stringify(v) : plain.test(v) && !words.has(v.toLowerCase()) ? v :
  JSON.stringify(v)

/** YAML, of which JSON strings are a part: what could be read otherwise is quoted. */
export function asYAML(v, indent = '') {
  const inner = indent + '  '
  const item = (x, lead) => {
    if (!holds(x)) return ` ${scalar(x)}\n`
    if (Array.isArray(x) ? !x.length : !Object.keys(x).length) return Array.isArray(x) ? ' []\n' : ' {}\n'
    return '\n' + asYAML(x, lead)
  }
  return Array.isArray(v) ? v.map((x) => `${indent}-${item(x, inner)}`).join('') :
    Object.entries(v).map(([k, x]) => `${indent}${scalar(k)}:${item(x, inner)}`).join('')
}

/** The command that makes the job: the definition itself, so that no field is left out. */
export const asCommand = (spec) => `carillon submit - <<'EOF'\n${JSON.stringify(spec, null, 2)}\nEOF`

const text = (v) => v === undefined ? '' : typeof v === 'string' ? v : JSON.stringify(v, null, 2)
// Whether two values are the same, whatever the order of their fields.
const same = (a, b) => text(sorted(a)) === text(sorted(b))
const sorted = (v) => Array.isArray(v) ? v.map(sorted) : holds(v) ?
  Object.fromEntries(Object.keys(v).sort().map((k) => [k, sorted(v[k])])) : v

/** The fields that differ. */
export function changes(from, to) {
  const keys = [...new Set([...Object.keys(from), ...Object.keys(to)])]
  return keys.filter((k) => !same(from[k], to[k])).map((field) => ({ field, from: from[field], to: to[field] }))
}

const object = (v) => holds(v) && !Array.isArray(v)
// Of an object the parts that differ.
const parts = (list) => list.flatMap((c) => object(c.from) && object(c.to) ? parts(changes(c.from, c.to)).map((p) =>
  ({ ...p, field: c.field + '.' + p.field })) : [c])

export const Diff = ({ list }) => html`<div class="diff" tabindex="0" role="region" aria-label="Changes">
  ${parts(list).map((c) => html`<div class="name">${c.field}</div>
  ${c.from !== undefined && html`<div class="del"><span class="sr">removed: </span>− ${text(c.from)}</div>`}
    ${c.to !== undefined && html`<div class="add"><span class="sr">added: </span>+ ${text(c.to)}</div>`}`)}</div>`

/** Another client saved in between: for each field that both changed, one of the two is taken. */
export function Conflict({ base, theirs, mine, close, take }) {
  const both = changes(theirs, mine).filter((c) => !same(base[c.field], theirs[c.field]))
  const [picked, setPicked] = useState({})
  const merge = () => {
    const out = { ...mine }
    for (const c of changes(base, theirs)) if (same(base[c.field], mine[c.field]) ||
      picked[c.field] === 'theirs') theirs[c.field] === undefined ? delete out[c.field] : out[c.field] = theirs[c.field]
    take(out)
  }
  const waiting = both.filter((c) => !same(base[c.field], mine[c.field]))
  return html`<${Dialog} wide title="The job was changed meanwhile" onClose=${close} cancel="Back"
    footer=${html`<button class="button primary" disabled=${waiting.some((c) => !picked[c.field])}
    onClick=${merge}>Merge</button>`}>
    <p>Another client saved this job while you edited it. What only one of you changed is kept. ${waiting.length ?
      'Choose for the other fields:' : ''}</p>
    ${waiting.map((c) => html`<fieldset class="choose"><legend class="mono">${c.field}</legend>
      <p class="small muted">It was <code>${text(base[c.field]) || 'not set'}</code></p>
      ${[['theirs', 'Theirs', theirs[c.field]], ['mine', 'Yours', mine[c.field]]].map(([v, name, value]) =>
        html`<label class="check"><input type="radio" name=${'c-' + c.field} checked=${picked[c.field] === v}
        onChange=${() => setPicked({ ...picked, [c.field]: v })}/>${name}: <code class="wrap">
        ${text(value) || 'not set'}</code></label>`)}</fieldset>`)}<//>`
}
