/** Works of one name run in turn, in the order of their calls; those of different names run at once. A failed work does not hold up the next. */
export function inTurn(): <T>(name: string, work: () => Promise<T>) => Promise<T> {
  const last = new Map<string, Promise<unknown>>()
  return (name, work) => {
    const answer = (last.get(name) ?? Promise.resolve()).then(work)
    const ended = answer.then(
      () => undefined,
      () => undefined,
    )
    last.set(name, ended)
    void ended.then(() => last.get(name) === ended && last.delete(name))
    return answer
  }
}
