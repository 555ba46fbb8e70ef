/** What goes wrong with Kafka, on a broker that is killed and frozen. Work goes on without rings; here they come back by themselves. */
import t, { type Test } from 'tap'
import { ownKafka } from '../../servers/kafka.ts'
import { bells, inOrder, prefix, ringUntilHeard, until, withAdmin, type Bells } from './recording-consumer.ts'
import { member } from './group-member.ts'

/** Every ring was sent or lost. */
async function settled(t: Test, ringer: Bells): Promise<void> {
  await inOrder(ringer)
  await ringer.close()
  t.comment(`${ringer.count('rung')} rings sent, ${ringer.count('lost')} lost`)
  t.equal(ringer.count('rung') + ringer.count('lost'), ringer.asked())
}

t.test('an outage', async (t) => {
  const server = await ownKafka(t)
  if (!server) return
  const { brokers } = server

  await t.test('a start without Kafka waits for nothing, says so, and works once Kafka is there', async (t) => {
    await server.kill()
    const topicPrefix = prefix()
    const startMs = performance.now()
    const [ringer, hearer] = [await bells(t, brokers, { topicPrefix }), await bells(t, brokers, { topicPrefix })]
    hearer.consume(['image'], () => {})
    for (let id = 0; id < 6000; id++) ringer.publish('image', `task-${id}`)
    t.comment(`opened, listening, 6000 rings: ${Math.round(performance.now() - startMs)} ms`)
    await until(() => ringer.warnings.length > 0 && hearer.count('rebuilt') > 0)
    for (const broker of [ringer, hearer]) t.match(broker.health(), { ok: false, detail: /does not answer \(ECONNREFUSED\)/ })
    await server.start()
    await Promise.all([inOrder(ringer), inOrder(hearer)])
    await ringUntilHeard(ringer, hearer)
    t.ok(ringer.count('lost') >= 1000, 'what waits is bounded')
    await settled(t, ringer)
  })

  await t.test('a broker that is killed and comes back', async (t) => {
    const topicPrefix = prefix()
    const [ringer, hearer] = [await bells(t, brokers, { topicPrefix }), await bells(t, brokers, { topicPrefix })]
    hearer.consume(['image'], () => {})
    await ringUntilHeard(ringer, hearer)
    await server.kill()
    ringer.publish('image', 'task')
    await until(() => !ringer.health().ok && !hearer.health().ok)
    t.match(ringer.health().detail, /does not answer/)
    await server.start()
    await ringUntilHeard(ringer, hearer)
    await inOrder(hearer)
    await settled(t, ringer)
    t.comment(`${ringer.warnings.length} and ${hearer.warnings.length} warnings`)
  })

  await t.test('a broker that is frozen, and thaws', async (t) => {
    const topicPrefix = prefix()
    const [ringer, hearer] = [await bells(t, brokers, { topicPrefix }), await bells(t, brokers, { topicPrefix })]
    hearer.consume(['image'], () => {})
    await ringUntilHeard(ringer, hearer)
    server.freeze()
    const ringing = setInterval(() => ringer.publish('image', 'task'), 20)
    await until(() => !ringer.health().ok && !hearer.health().ok)
    for (const broker of [ringer, hearer]) t.match(broker.health().detail, /does not answer/)
    server.thaw()
    clearInterval(ringing)
    await ringUntilHeard(ringer, hearer)
    await inOrder(hearer)
    await settled(t, ringer)
  })

  await t.test('a topic that is deleted is made again', async (t) => {
    const topicPrefix = prefix()
    const [ringer, hearer] = [await bells(t, brokers, { topicPrefix }), await bells(t, brokers, { topicPrefix })]
    hearer.consume(['image'], () => {})
    await ringUntilHeard(ringer, hearer)
    await withAdmin(brokers, (admin) => admin.deleteTopics({ topics: [`${topicPrefix}image`] }))
    await until(() => {
      ringer.publish('image', 'task')
      return ringer.count('lost') > 0 || !ringer.health().ok
    })
    await ringUntilHeard(ringer, hearer)
    await settled(t, ringer)
  })

  await t.test('a process that closes while Kafka does not answer, or is away, ends by itself', async (t) => {
    const { url } = await bells(t, brokers, { topicPrefix: prefix() })
    const [first, second] = [member(t, url), member(t, url)]
    await Promise.all([first.says('in order'), second.says('in order')])
    server.freeze()
    const startMs = performance.now()
    t.same(await first.end(), { code: 0, stderr: '' })
    t.comment(`with a frozen broker: after ${Math.round(performance.now() - startMs)} ms`)
    await server.kill()
    await second.says('in trouble')
    const againMs = performance.now()
    t.same(await second.end(), { code: 0, stderr: '' })
    t.comment(`with none: after ${Math.round(performance.now() - againMs)} ms`)
  })
})
