// The theme: as the system has it until one is chosen.
import { signal } from './ui.js'

export const theme = signal(document.documentElement.dataset.theme)
export function flip() { set(theme.value === 'dark' ? 'light' : 'dark', true) }
function set(name, keep) {
  document.documentElement.dataset.theme = name
  theme.value = name
  if (keep) try { localStorage.setItem('carillon.theme', name) } catch { /* for this visit then */ }
}
matchMedia('(prefers-color-scheme: dark)').addEventListener('change', (e) => {
  let kept = null
  try { kept = localStorage.getItem('carillon.theme') } catch { /* none */ }
  if (!kept) set(e.matches ? 'dark' : 'light', false)
})

/** The value of a token, for what is drawn on a canvas. It reads the theme, so who draws with it draws again. */
export function color(name) {
  theme.value
  return getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim()
}
