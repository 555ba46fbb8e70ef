/** Looking for work after a ring: never beside itself, and once more when it was rung for meanwhile. */

/**
 * Makes one look at a time out of `look`. A call during a look returns at once and makes one more follow it. What `look` throws goes to `failed`,
 * and the next call looks again.
 */
export function oneLook(look: () => Promise<void>, failed: (error: unknown) => void): () => Promise<void> {
  let isLooking = false
  let again = false
  return async () => {
    again = isLooking
    if (isLooking) return
    isLooking = true
    try {
      do {
        again = false
        await look()
      } while (again)
    } catch (error) {
      failed(error)
    } finally {
      isLooking = false
    }
  }
}
