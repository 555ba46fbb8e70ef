/** Lazy opening: opened at first use, by all who need it together. */

export type Lazy<T> = {
  /** Opens it unless it is open. After a failure, such as when no descriptor was free, the next call tries again. */
  get(): Promise<T>
  /** Null unless it is open, or will be. */
  opened(): Promise<T | null>
}

/** What `open` opens, at first use. */
export function lazy<T>(open: () => Promise<T>): Lazy<T> {
  let opening: Promise<T> | null = null
  return {
    get() {
      opening ??= open().catch((error: unknown) => {
        opening = null
        throw error
      })
      return opening
    },
    opened: async () => opening?.catch(() => null) ?? null,
  }
}
