// One place binds htm to Preact, so that there is one Preact and one set of hooks.
import { h, render } from '../vendor/preact.js'
import htm from '../vendor/htm.js'
export { useState, useEffect, useLayoutEffect, useRef, useMemo } from '../vendor/hooks.js'
export { signal, effect, batch } from '../vendor/signals.js'
export const html = htm.bind(h)
export { h, render }
