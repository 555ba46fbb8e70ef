import t from 'tap'
import type { Broker } from '../../src/backends/broker/broker.ts'
import { openStudio } from './studio.ts'

t.test('a worker with all slots busy leaves wake-up messages to others until a slot is free', async (t) => {
  const said: string[] = []
  const studio = await openStudio(t, {
    env: { WORKER_SLOTS: '2' },
    also(app) {
      const broker = app.broker as Broker
      const { consume } = broker
      broker.consume = (...args) => {
        const { pause, resume, stop } = consume(...args)
        const say = (word: string, then: () => void) => () => {
          said.push(word)
          then()
        }
        return { pause: say('pause', pause), resume: say('resume', resume), stop }
      }
    },
  })
  studio.engine.next('hang', 'hang', 'hang')
  await studio.create()
  await studio.engine.begun(1)
  t.same(said, [], 'one slot is free')
  await studio.create()
  await studio.engine.begun(2)
  t.same(said, ['pause'])
  await studio.create()
  studio.engine.release()
  await studio.engine.begun(3)
  t.equal(said[1], 'resume')
  studio.engine.release()
})
