/** Reading one thing for many who ask at once, and many things for them in one go. */

/**
 * Reads a thing at most once at a time: all who ask while it is being read share the one read that follows, which begins after each of them asked and thus tells
 * nobody anything old. Where hundreds of requests stand on one record the server is asked twice, not hundreds of times; who is alone is not delayed. A read that
 * fails fails those who share it. What is read must not be changed by its readers.
 */
export function gathered<T>(read: (id: string) => Promise<T>): (id: string) => Promise<T> {
  const running = new Map<string, Promise<unknown>>()
  const following = new Map<string, Promise<T>>()

  function begin(id: string): Promise<T> {
    const reading = read(id)
    const ended: Promise<void> = reading.then(
      () => end(id, ended),
      () => end(id, ended),
    )
    running.set(id, ended)
    return reading
  }

  function end(id: string, ended: Promise<void>): void {
    if (running.get(id) === ended) running.delete(id)
  }

  return (id) => {
    const shared = following.get(id)
    if (shared) return shared
    const now = running.get(id)
    if (!now) return begin(id)
    const next = now.then(() => {
      following.delete(id)
      return begin(id)
    })
    following.set(id, next)
    return next
  }
}

/**
 * As `gathered`, for many things of which each is asked for by its id: what is asked for while a read is under way is read together afterwards. Thousands of keys that
 * are looked at after a start cost the server hundreds of commands. A read that fails fails all who share it.
 */
export function gatheredTogether<T>(read: (ids: string[]) => Promise<(id: string) => T>): (id: string) => Promise<T> {
  let asked = new Map<string, PromiseWithResolvers<T>>()
  let isReading = false

  async function readOn(): Promise<void> {
    while (asked.size > 0) {
      const batch = asked
      asked = new Map()
      try {
        const found = await read([...batch.keys()])
        for (const [id, { resolve }] of batch) resolve(found(id))
      } catch (error) {
        for (const { reject } of batch.values()) reject(error)
      }
    }
    isReading = false
  }

  return (id) => {
    const one = asked.get(id) ?? Promise.withResolvers<T>()
    asked.set(id, one)
    if (!isReading) {
      isReading = true
      void readOn()
    }
    return one.promise
  }
}
