/** Single flight: at most one pass at a time; calls during a pass are coalesced into one more. */

export type SingleFlight = {
  /** Starts a pass. A call during one returns at once and makes one more pass follow. */
  (): Promise<void>
  /** Resolves when no pass is running. */
  done(): Promise<void>
}

/** Wraps `pass` into a single flight. An error of a pass goes to `failed`; the next call starts again. */
export function singleFlight(pass: () => Promise<void>, failed: (error: unknown) => void): SingleFlight {
  let running: Promise<void> | null = null
  let again = false

  async function run(): Promise<void> {
    try {
      do {
        again = false
        await pass()
      } while (again)
    } catch (error) {
      failed(error)
    } finally {
      running = null
    }
  }

  const start = async (): Promise<void> => {
    again = running !== null
    await (running === null ? (running = run()) : null)
  }
  return Object.assign(start, { done: async () => running ?? undefined })
}
