// The theme: as the system has it until one is chosen.
import { signal } from './ui.js'

const key = 'carillon.theme', dark = matchMedia('(prefers-color-scheme: dark)')
let kept = null
try { kept = localStorage.getItem(key) } catch { /* none */ }
/** light, dark or system */
export const choice = signal(kept ?? 'system')
export const theme = signal(document.documentElement.dataset.theme)
export function flip() {
  choice.value = { light: 'dark', dark: 'system', system: 'light' }[choice.value]
  show()
  try {
    choice.value === 'system' ? localStorage.removeItem(key) : localStorage.setItem(key, choice.value)
  } catch { /* for this visit then */ }
}
function show() {
  const system = dark.matches ? 'dark' : 'light'
  document.documentElement.dataset.theme = theme.value = choice.value === 'system' ? system : choice.value
}
dark.addEventListener('change', show)

/** The value of a token, for what is drawn on a canvas. It reads the theme, so who draws with it draws again. */
export function color(name) {
  theme.value
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
}
