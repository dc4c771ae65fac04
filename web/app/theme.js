// Runs before the first paint, as a blocking script: a module would come after it, and a dark page would flash white.
(function () {
  var kept = null
  try { kept = localStorage.getItem('carillon.theme') } catch (e) { /* storage is forbidden: the system decides */ }
  var dark = kept ? kept === 'dark' : matchMedia('(prefers-color-scheme: dark)').matches
  document.documentElement.dataset.theme = dark ? 'dark' : 'light'
})()
