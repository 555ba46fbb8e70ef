/**
 * Upgrade, roll-back and upgrade again under load: every process is replaced by one of the other version, gateways one by one. The earlier version is the one that the changelog
 * names, so that the drill needs the repository's history; it runs with the packages of this checkout.
 */
import { join } from 'node:path'
import t from 'tap'
import { openSite } from '../flows/deployment.ts'
import { earlierVersion, unpack } from '../flows/earlier.ts'
import { declare } from '../flows/manifests.ts'
import { PROGRAM } from '../flows/program.ts'
import { run } from '../flows/run.ts'
import { folderFor } from '../monitoring/alert-drill.ts'
import { openLoad } from '../pods/load.ts'
import { kafka } from '../servers/kafka.ts'
import { mongodb } from '../servers/mongodb.ts'
import { openFleet } from './fleet.ts'
import { IMAGE_PRICE, LOAD_PLANS, settled } from './load.ts'
import { openSteps } from './steps.ts'

t.setTimeout(1_800_000)

t.test('an upgrade and a roll-back under load: no request fails, and every task is made and charged once', async (t) => {
  const [store, brokers, folder] = [await mongodb(t), await kafka(t), await folderFor(t)]
  if (store === null || brokers === null) return
  const { step, end } = openSteps(t)
  const [earlier, { commit }] = [join(folder, 'earlier'), await earlierVersion()]
  await step(`the program of ${commit}`, () => unpack(commit, earlier))
  const site = openSite({ mongodb: store, brokers })
  t.teardown(() => site.close())
  await declare(folder, 'plans', ...LOAD_PLANS)
  const { balancer, key, replaceAll } = await step('start of five processes of the earlier version', () => openFleet(t, { site, folder, envOf: () => ({}), root: earlier }))
  const keys = { media: await key('media'), coding: await key('coding') }
  const load = openLoad(balancer, keys, { clients: 2, again: false })
  await step('upgrade', () => replaceAll())
  await step('roll-back', () => replaceAll(earlier))
  await step('upgrade again', () => replaceAll())
  const { done, failed, ordered } = await load.stop()
  t.comment(`${done} calls meanwhile, ${failed.length} failed, ${ordered} images ordered`)
  t.same(failed, [])
  t.equal(await settled(balancer, keys.media), (ordered * IMAGE_PRICE).toFixed(4), 'every image was made and charged once')
  const verified = await run(process.execPath, [PROGRAM, 'verify'], { cwd: folder, env: await site.settings(folder) })
  t.equal(verified.code, 0, verified.stdout.trim())
  end()
})
