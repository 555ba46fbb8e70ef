/** Faults in the writes of MongoDB's driver. */
import { Collection, MongoNetworkError } from 'mongodb'

export type WriteFault = { write: number; happens: boolean }
type Write = 'bulkWrite' | 'insertOne' | 'insertMany' | 'updateOne' | 'replaceOne' | 'findOneAndUpdate' | 'deleteOne' | 'deleteMany' | 'updateMany'

/** Makes the `write`th of these writes from now fail, after it took effect or instead, then by `lost`. The returned function removes the fault and returns the number of writes. */
export function interrupt(names: readonly Write[], { write, happens }: WriteFault, lost: Error = new MongoNetworkError('the connection was lost')): () => number {
  const original = Object.fromEntries(names.map((name) => [name, Collection.prototype[name]]))
  let count = 0
  for (const name of names) {
    const real = original[name] as (...values: unknown[]) => Promise<unknown>
    const faulty = async function (this: Collection, ...values: unknown[]): Promise<unknown> {
      if (++count !== write) return real.apply(this, values)
      if (happens) await real.apply(this, values)
      throw happens ? new MongoNetworkError('the connection was lost') : lost
    }
    Object.assign(Collection.prototype, { [name]: faulty })
  }
  return () => {
    Object.assign(Collection.prototype, original)
    return count
  }
}
