/** The contract of the resources backend, kept by `files:`. */
import { existsSync } from 'node:fs'
import { mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { openFiles, type FilesResources } from '../../../src/backends/resources/manifests/manifests.ts'
import { openSecrets } from '../../../src/backends/resources/manifests/secret-files.ts'
import { runContract } from '../../contracts/run-contract.ts'
import { resourcesPromises, type Place } from '../../contracts/resources.ts'
import { eventually } from '../../flows/eventually.ts'
import { entriesOf, makeForeign, openFolder, settle } from './manifest-folder.ts'
import { mediaPlan } from './manifests.ts'

type Named = { kind: string; metadata: { namespace?: string; name: string } }

async function place(t: Test): Promise<Place> {
  const folder = await openFolder(t)
  const fileOf = (kind: string, namespace: string, name: string) => `${kind}-${namespace}-${name}.yaml`
  let last: FilesResources | null = null
  return {
    namespace: (name) => name,
    async open() {
      last = await folder.open()
      return last
    },
    async declare(...documents) {
      for (const document of documents) {
        const { kind, metadata } = document as Named
        await folder.write(fileOf(kind, metadata.namespace ?? 'default', metadata.name), document)
      }
    },
    withdraw: ({ kind, namespace, name }) => rm(join(folder.plans, fileOf(kind, namespace, name))),
    isThere: async ({ kind, namespace, name }) => existsSync(join(folder.plans, fileOf(kind, namespace, name))),
    async settle() {
      if (last) await settle(last, folder)
    },
    makeForeignSecret: (namespace, name) => makeForeign(join(folder.secrets, namespace, name)),
    secretEntries: (namespace, name) => entriesOf(join(folder.secrets, namespace, name)),
    tamper: (namespace, name) => writeFile(join(folder.secrets, namespace, name, 'api-key'), 'svc_live_forged'),
  }
}

t.test('the files: adapter keeps the contract of the resources backend', (t) =>
  runContract(t, resourcesPromises, place, {
    'a key that was retained stays when it is deleted, also for whoever comes later, until it is released': 'a folder has no finalizers: a removed manifest is gone',
    'of two that follow one source one leads, until it resigns': 'a folder has one controller only',
    'what was declared, edited or deleted since its status was written is not observed': 'the status of a folder is a file, and isObserved does no I/O',
  }),
)

t.test('a Secret with a text longer than a key is not expanded in the template, and an entry may have any name', async (t) => {
  const folder = t.testdir({})
  const secrets = openSecrets(folder)
  const owner = { uid: 'u', namespace: 'acme', name: 'ci', createdAt: 1, template: { data: { config: '$(api-key)'.repeat(600) } } }
  const secret = { apiKey: 'svc_live_first', keyId: 'u-0', mac: 'm' }
  await secrets.put(owner, 'key', secret)
  await writeFile(join(folder, 'acme', 'key', '__proto__'), 'x')
  t.same(await secrets.get(owner, 'key'), { ...secret, isModified: true })
  t.equal(await secrets.put(owner, 'key', secret), 'written')
  t.notOk(existsSync(join(folder, 'acme', 'key', '__proto__')), 'what the template has not is removed')
  await writeFile(join(folder, 'acme', 'key', 'api-key'), Buffer.alloc(1024 * 1024, 'x'))
  t.match(await secrets.get(owner, 'key'), { isModified: true })
})

t.test('polling finds changes without a call of sync, also in a folder that is created later', async (t) => {
  const root = t.testdir({})
  const folder = join(root, 'plans')
  const declarations = { declarations: async () => [], declare: async () => {}, undeclare: async () => {} }
  const quiet = { info: () => {}, warn: () => {}, error: () => {} }
  const resources = await openFiles({ url: `files:${folder}`, dataDir: join(root, 'data'), declarations, log: quiet })
  t.teardown(() => resources.close())
  await resources.watch(() => {})
  t.match(resources.health(), { ok: false })
  await mkdir(folder)
  const named = (displayName: string) => eventually(displayName, async () => resources.list('Plan').find(({ spec }) => spec.displayName === displayName) ?? null)
  for (const name of ['one', 'two', 'three']) {
    await writeFile(join(folder, 'a.yaml'), JSON.stringify(mediaPlan('studio', { displayName: name })))
    t.ok(await named(name))
  }
  await rm(join(folder, 'a.yaml'))
  await eventually('the plan to go', async () => (resources.list('Plan').length === 0 ? true : null))
  t.match(resources.health(), { ok: true })
})
