/** Looking for work after a ring: never beside itself, and once more when it was rung for meanwhile. */

export type Look = {
  /** Looks. A call during a look returns at once and makes one more follow it. */
  (): Promise<void>
  /** Resolves when no look is under way. */
  done(): Promise<void>
}

/** Makes one look at a time out of `look`. What that throws goes to `failed`, and the next call looks again. */
export function singleFlight(look: () => Promise<void>, failed: (error: unknown) => void): Look {
  let looking: Promise<void> | null = null
  let again = false

  async function lookOut(): Promise<void> {
    try {
      do {
        again = false
        await look()
      } while (again)
    } catch (error) {
      failed(error)
    } finally {
      looking = null
    }
  }

  const ring = async (): Promise<void> => {
    again = looking !== null
    await (looking === null ? (looking = lookOut()) : null)
  }
  return Object.assign(ring, { done: async () => looking ?? undefined })
}
