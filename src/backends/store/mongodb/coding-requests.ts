/** The newest coding requests of each plan in MongoDB. */
import { type CodingRequest, KEPT_REQUESTS, type RequestPosition } from '../../../domain/coding-requests.ts'
import type { Store } from '../store.ts'
import { fromStored, toStored, type Database, type Stored } from './database.ts'
import type { Indexes } from './indexes.ts'

export const codingRequestIndexes = {
  // requests, logRequests: those that are not among the newest any more
  coding_requests: [
    { name: 'newest', key: { subscription: 1, at: -1, _id: -1 } },
    // removeRequests, requestsBefore
    { name: 'arrived', key: { at: 1 } },
  ],
} satisfies Indexes

const before = ({ at, id }: RequestPosition) => ({ $or: [{ at: { $lt: at } }, { at, _id: { $lt: id } }] })

export function openCodingRequests(database: Database): Pick<Store, 'logRequests' | 'requests' | 'removeRequests' | 'requestsBefore'> {
  const collection = database.collection<Stored<CodingRequest>>('coding_requests')
  const newest = (subscription: string, filter: object) =>
    collection.find({ subscription, ...filter }, { sort: { at: -1, _id: -1 }, hint: 'newest' })

  async function trim(subscription: string): Promise<void> {
    const [first] = await newest(subscription, {}).skip(KEPT_REQUESTS).limit(1).toArray()
    if (!first) return
    await collection.deleteMany({ subscription, $or: [{ at: { $lt: first.at } }, { at: first.at, _id: { $lte: first._id } }] })
  }

  return {
    logRequests: async (requests) => {
      if (requests.length === 0) return
      const writes = requests.map((request) => {
        const { _id, ...facts } = toStored(request)
        return { updateOne: { filter: { _id }, update: { $setOnInsert: facts }, upsert: true } }
      })
      await collection.bulkWrite(writes, { ordered: false })
      for (const subscription of new Set(requests.map((request) => request.subscription))) await trim(subscription)
    },
    requests: async (subscription, position, limit) => {
      const page = newest(subscription, position ? before(position) : {}).limit(limit)
      return (await page.toArray()).map(fromStored<CodingRequest>)
    },
    removeRequests: async (limitAt, limit) => {
      const old = await collection.find({ at: { $lt: limitAt } }, { projection: { _id: 1 }, limit }).toArray()
      return old.length === 0 ? 0 : (await collection.deleteMany({ _id: { $in: old.map(({ _id }) => _id) } })).deletedCount
    },
    requestsBefore: (limitAt) => collection.countDocuments({ at: { $lt: limitAt } }),
  }
}
