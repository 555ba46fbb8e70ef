/** Bursts of concurrent requests over several gateways. */
import { answer, at, type Answer } from './calls.ts'
import type { Program } from './program.ts'

/** The base URLs of the gateways. */
export function gatewaysOf(program: Program): Program[] {
  return program.processes.filter(({ role }) => role === 'gateway').map(({ url, opsUrl }) => ({ ...program, url, opsUrl }))
}

/** Makes `count` calls, at most `atOnce` in flight. Rejects with the first error. */
export async function burst<T>(count: number, atOnce: number, call: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = []
  let next = 0
  const one = async (): Promise<void> => {
    for (let index = next++; index < count; index = next++) results[index] = await call(index)
  }
  await Promise.all(Array.from({ length: Math.min(count, atOnce) }, one))
  return results
}

/** Counts answers by status and error code, such as `{ '202': 900, '402 insufficient_balance': 4100 }`. */
export function tallied(answers: { status: number; code: string }[]): Record<string, number> {
  const counts: Record<string, number> = {}
  for (const { status, code } of answers) {
    const name = `${status} ${code}`.trim()
    counts[name] = (counts[name] ?? 0) + 1
  }
  return counts
}

/** One POST with additional headers, read to its end. `code` is the error code, '' without an error. */
export async function outcome(program: Program, key: string, path: string, body: object, headers: Record<string, string> = {}): Promise<Answer & { code: string }> {
  const answered = await answer(
    await fetch(`${program.url}${path}`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...headers },
      body: JSON.stringify(body),
    }),
  )
  const code = at(answered.body, 'error', 'code')
  return { ...answered, code: typeof code === 'string' ? code : '' }
}
