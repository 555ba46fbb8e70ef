/** What Node says of its cache of compiled code, with NODE_DEBUG_NATIVE=COMPILE_CACHE. */

/** Modules by the outcome: `accepted`; `rejected`, because V8's flags were others; `not initialized`, where the cache had no code. */
export function compiledCode(log: readonly string[]): Record<string, string[]> {
  const outcomes = log.flatMap((line) => {
    const [, module = '', outcome = ''] = /V8 code cache for (.+) was ([a-z ]+), /.exec(line) ?? []
    return outcome === '' ? [] : [{ module, outcome }]
  })
  const byOutcome = Map.groupBy(outcomes, ({ outcome }) => outcome)
  return Object.fromEntries([...byOutcome].map(([outcome, all]) => [outcome, all.map(({ module }) => module)]))
}
