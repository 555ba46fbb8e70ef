/** What keeps two controllers from acting on one source. */
import type { Resources } from '../../../src/backends/resources/resources.ts'
import { eventually } from '../../flows/eventually.ts'
import type { Promises } from '../run-contract.ts'
import type { Place } from '../resources.ts'

/** Opens sources that all tell into one list when they lead. */
function candidates(place: Place): { told: string[]; enter(name: string): Promise<Resources>; toLead(name: string): Promise<void> } {
  const told: string[] = []
  return {
    told,
    async enter(name) {
      const resources = await place.open()
      await resources.lead((isLeading) => told.push(`${name} ${isLeading ? 'leads' : 'stops'}`))
      return resources
    },
    toLead: async (name) => void (await eventually(`${name} to lead`, async () => (told.includes(`${name} leads`) ? true : null))),
  }
}

export const leadingPromises: Promises<Place> = {
  'whoever is alone leads, is told so once, and hears nothing more of it once it resigned': async (t, place) => {
    const { told, enter, toLead } = candidates(place)
    const first = await enter('first')
    await toLead('first')
    t.equal(first.isLeading(), true)
    for (const _ of ['first', 'again']) await first.resign()
    await first.close()
    t.same(told, ['first leads'])
  },

  'whoever resigned keeps nobody else from leading, whether it led, had just begun to try, or never tried': async (t, place) => {
    const { told, enter, toLead } = candidates(place)
    const never = await place.open()
    await never.resign()
    const hasty = await place.open()
    const trying = hasty.lead((isLeading) => told.push(`hasty ${isLeading ? 'leads' : 'stops'}`))
    await hasty.resign()
    await trying
    const first = await enter('first')
    await toLead('first')
    await first.resign()
    await enter('second')
    await toLead('second')
    t.same(told.filter((line) => !line.startsWith('hasty')), ['first leads', 'second leads'])
  },

  'of two that follow one source one leads, until it resigns': async (t, place) => {
    const { told, enter, toLead } = candidates(place)
    const first = await enter('first')
    await toLead('first')
    const second = await enter('second')
    t.same([told, first.isLeading(), second.isLeading()], [['first leads'], true, false], 'it has tried')
    told.push('first resigns')
    await first.resign()
    await toLead('second')
    t.same(told, ['first leads', 'first resigns', 'second leads'])
  },
}
