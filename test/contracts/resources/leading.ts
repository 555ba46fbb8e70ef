/** What keeps two controllers from acting on one source. */
import type { Resources } from '../../../src/resources/resources.ts'
import { eventually } from '../../flows/eventually.ts'
import type { Promises } from '../promises.ts'
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

/** How often a source has asked its server for something. */
function asked(resources: Resources): number {
  return (resources.figures()?.requests ?? []).reduce((sum, { count }) => sum + count, 0)
}

export const leadingPromises: Promises<Place> = {
  'whoever is alone leads, is told so once, and hears nothing more of it once it resigned': async (t, place) => {
    const { told, enter, toLead } = candidates(place)
    const first = await enter('first')
    await toLead('first')
    for (const _ of ['first', 'again']) await first.resign()
    await first.close()
    t.same(told, ['first leads'])
  },

  'whoever resigned keeps nobody else from leading, whether it led, had just begun to try, or never tried': async (t, place) => {
    const { told, enter, toLead } = candidates(place)
    const never = await place.open()
    await never.resign()
    const hasty = await enter('hasty')
    await hasty.resign()
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
    await eventually('the second to have tried', async () => (asked(second) > 1 ? true : null))
    t.same(told, ['first leads'])
    told.push('first resigns')
    await first.resign()
    await toLead('second')
    t.same(told, ['first leads', 'first resigns', 'second leads'])
  },
}
