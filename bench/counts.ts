/** What requests make this thread do, by number: promises, and files of a checkout that take part. Both slow it down, so that nothing is timed meanwhile. */
import { createHook } from 'node:async_hooks'
import { Session } from 'node:inspector/promises'
import { pathToFileURL } from 'node:url'

/** A function that runs less than once for so many requests is periodic work. What is done for a batch, such as a commit, runs more often. */
const REQUESTS_A_CALL = 64

/** Promises that a request makes, as Node's `async_hooks` counts them: with those of periodic work. `run` makes so many requests. */
export async function countPromises(requests: number, run: () => Promise<unknown>): Promise<number> {
  let made = 0
  const hook = createHook({ init: (_id, type) => void (type === 'PROMISE' && made++) }).enable()
  await run()
  hook.disable()
  return made / requests
}

/** Files of `src` and `plugins` below `root` of which a function ran for the requests. */
export async function countFiles(root: string, requests: number, run: () => Promise<unknown>): Promise<number> {
  const session = new Session()
  session.connect()
  await session.post('Profiler.enable')
  await session.post('Profiler.startPreciseCoverage', { callCount: true, detailed: false })
  await run()
  const { result } = await session.post('Profiler.takePreciseCoverage')
  await session.post('Profiler.stopPreciseCoverage')
  session.disconnect()
  const ours = ['src', 'plugins'].map((folder) => `${pathToFileURL(root).href}/${folder}/`)
  const takesPart = ({ ranges }: { ranges: { count: number }[] }) => (ranges[0]?.count ?? 0) * REQUESTS_A_CALL >= requests
  return result.filter(({ url, functions }) => ours.some((folder) => url.startsWith(folder)) && functions.some(takesPart)).length
}
