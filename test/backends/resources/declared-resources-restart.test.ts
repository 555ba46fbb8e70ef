/** A folder of manifests with its Secrets and statuses after a restart, a store outage, and foreign changes. */
import { chmod, mkdir, readFile, rename, rm, stat, symlink, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import t, { type Test } from 'tap'
import { Unavailable } from '../../../src/domain/errors.ts'
import type { Declaration, Declarations } from '../../../src/backends/resources/resources.ts'
import { CI, entriesOf, openFolder, openWatched, OTHER, settle, STUDIO, warned } from './manifest-folder.ts'
import { apiKey, mediaPlan } from './manifests.ts'

t.test('after a restart nothing is deleted while a file is broken', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'))
  await folder.write('b.yaml', mediaPlan('other'))
  const first = await openWatched(folder)
  await first.resources.close()
  await folder.write('a.yaml', 'a: [')
  await rm(join(folder.plans, 'b.yaml'))
  const { resources, syncTwice } = await openWatched(folder)
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.ok(resources.get(STUDIO) && resources.get(CI) && resources.get(OTHER))
  await folder.write('a.yaml', mediaPlan('studio'))
  await settle(resources, folder)
  t.ok(resources.get(STUDIO))
  t.equal(resources.get(CI), null)
  t.equal(resources.get(OTHER), null)
})

t.test('a folder without any of the resources is another one and changes nothing, until one of them is named there', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'))
  await (await openWatched(folder)).resources.close()
  const detail = 'the folder of manifests has none of the resources declared before, such as ApiKey/acme/ci (2 in all), so it changes nothing: mount or name the right one, or add a document with the kind, namespace and name of one of them'
  for (const documents of [[], [mediaPlan('other')]]) {
    await rm(join(folder.plans, 'a.yaml'), { force: true })
    if (documents.length > 0) await folder.write('b.yaml', ...documents)
    folder.log.length = 0
    // A process that is started again and again does not take to the folder.
    for (let starts = 0; starts < 2; starts++) {
      const { resources, syncTwice } = await openWatched(folder)
      for (let i = 0; i < 3; i++) await syncTwice(5_000)
      t.same([resources.get(STUDIO), resources.get(CI)].includes(null), false)
      t.equal(resources.get(OTHER), null)
      t.match(resources.health(), { ok: false, detail })
      await t.rejects(resources.issueKey({ namespace: 'acme', name: 'new', spec: { planRef: { name: 'studio' } } }), Unavailable)
      await resources.close()
    }
    t.match(folder.log, [{ level: 'error', facts: { event: 'manifests_unavailable', reason: detail } }, { level: 'error' }], 'reported once a start')
  }
  const { resources } = await openWatched(folder)
  await folder.write('c.yaml', { kind: 'ApiKey', metadata: { name: 'ci', namespace: 'acme' } })
  await settle(resources, folder)
  t.ok(resources.get(OTHER) && resources.get(CI))
  t.equal(resources.get(STUDIO), null)
  await rm(join(folder.plans, 'c.yaml'))
  await settle(resources, folder)
  t.equal(resources.get(CI), null)
  t.match(resources.health(), { ok: true })
})

t.test('a folder without any of the resources and with a file that cannot be read changes nothing', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'))
  await (await openWatched(folder)).resources.close()
  await rm(join(folder.plans, 'a.yaml'))
  await folder.write('b.yaml', mediaPlan('other'))
  await folder.write('kustomization.yaml', { kind: 'Kustomization' })
  const { resources, syncTwice } = await openWatched(folder)
  t.match(resources.health(), { ok: true }, 'it may be the right one')
  await t.rejects(resources.issueKey({ namespace: 'acme', name: 'new', spec: { planRef: { name: 'studio' } } }), Unavailable)
  await t.rejects(resources.changeKey({ namespace: 'acme', name: 'ci' }, { state: 'Suspended' }), Unavailable)
  await rm(join(folder.plans, 'kustomization.yaml'))
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.ok(resources.get(STUDIO) && resources.get(CI))
  t.equal(resources.get(OTHER), null)
})

t.test('one removal that fails does not hold back the others', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'), apiKey('ci', 'studio'), mediaPlan('other'))
  const { resources, syncTwice } = await openWatched(folder)
  const statuses = join(folder.status, 'acme', 'apikey')
  await mkdir(join(statuses, 'ci.yaml'), { recursive: true })
  await folder.write('a.yaml', mediaPlan('studio'))
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.equal(resources.get(OTHER), null)
  t.ok(resources.get(CI))
  await rm(join(statuses, 'ci.yaml'), { recursive: true })
  await settle(resources, folder)
  t.equal(resources.get(CI), null)
})

t.test('the last document can be removed from the folder that had it, but not by an empty folder in its place', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', mediaPlan('studio'))
  const { resources, syncTwice } = await openWatched(folder)
  await rename(folder.plans, `${folder.plans}.away`)
  await mkdir(folder.plans)
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.ok(resources.get(STUDIO))
  t.match(resources.health(), { ok: false })
  await rm(folder.plans, { recursive: true })
  await syncTwice()
  await rename(`${folder.plans}.away`, folder.plans)
  const document = await readFile(join(folder.plans, 'a.yaml'), 'utf8')
  await rm(join(folder.plans, 'a.yaml'))
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.ok(resources.get(STUDIO), 'a folder that could not be read may be another one')
  await writeFile(join(folder.plans, 'a.yaml'), document)
  await settle(resources, folder)
  t.match(resources.health(), { ok: true })
  await rename(folder.plans, `${folder.plans}.away`)
  await syncTwice()
  await rename(`${folder.plans}.away`, folder.plans)
  await syncTwice()
  await rm(join(folder.plans, 'a.yaml'))
  await settle(resources, folder)
  t.equal(resources.get(STUDIO), null, 'it is known again by its documents')
  await writeFile(join(folder.plans, 'a.yaml'), document)
  await settle(resources, folder)
  await rename(folder.plans, `${folder.plans}.away`)
  await mkdir(folder.plans)
  await syncTwice()
  await rm(join(`${folder.plans}.away`, 'a.yaml'))
  await rm(folder.plans, { recursive: true })
  await rename(`${folder.plans}.away`, folder.plans)
  await settle(resources, folder)
  t.equal(resources.get(STUDIO), null)
  t.match(resources.health(), { ok: true })
})

t.test('a paused resource is paused after a restart too, even if its file is broken by then', async (t) => {
  const folder = await openFolder(t)
  const paused = { ...mediaPlan('studio', { state: 'Suspended' }), metadata: { name: 'studio', namespace: 'acme', annotations: { 'tollgate.dev/paused': 'true' } } }
  await folder.write('a.yaml', paused)
  await (await openWatched(folder)).resources.close()
  await folder.write('a.yaml', 'a: [')
  const second = await openWatched(folder)
  t.match(second.resources.get(STUDIO), { metadata: { generation: 1, annotations: paused.metadata.annotations } })
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Suspended' }))
  await second.syncTwice()
  await second.resources.close()
  await folder.write('a.yaml', 'a: [')
  const { resources } = await openWatched(folder)
  t.equal(resources.get(STUDIO)?.metadata.annotations, undefined)
})

t.test('transition rules hold across a restart', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'studio', { rotationRevision: 2, state: 'Revoked' }))
  const first = await openWatched(folder)
  await first.resources.close()
  await folder.write('a.yaml', apiKey('ci', 'studio', { rotationRevision: 1, state: 'Active' }))
  const { resources } = await openWatched(folder)
  t.match(resources.get(CI), { metadata: { generation: 1 }, spec: { state: 'Revoked', rotationRevision: 2 } })
  t.match(warned(folder)[0], /a Revoked key stays Revoked; spec\.rotationRevision: rotationRevision can only be raised/)
})

t.test('changes are not applied while the store is unavailable, and are applied afterwards', async (t) => {
  const kept = new Map<string, Declaration>()
  let isAway = false
  const reach = async () => {
    if (isAway) throw new Unavailable('store', new Error('away'))
  }
  const declarations: Declarations = {
    declarations: async () => [...kept.values()],
    declare: async (declaration) => reach().then(() => void kept.set(declaration.ref.name, declaration)),
    undeclare: async (ref) => reach().then(() => void kept.delete(ref.name)),
  }
  const folder = await openFolder(t, declarations)
  await folder.write('a.yaml', mediaPlan('studio'))
  await folder.write('b.yaml', mediaPlan('other'))
  const { resources, notified, syncTwice } = await openWatched(folder)
  notified.length = 0
  isAway = true
  await folder.write('a.yaml', mediaPlan('studio', { state: 'Suspended' }))
  await rm(join(folder.plans, 'b.yaml'))
  for (let i = 0; i < 3; i++) await syncTwice(5_000)
  t.match(resources.get(STUDIO), { metadata: { generation: 1 }, spec: { state: 'Active' } })
  t.ok(resources.get(OTHER))
  t.match(resources.health(), { ok: false, detail: 'changes of the manifests cannot be applied: the store is unavailable' })
  t.same(notified, [])
  isAway = false
  await settle(resources, folder)
  t.match(resources.get(STUDIO), { metadata: { generation: 2 }, spec: { state: 'Suspended' } })
  t.equal(resources.get(OTHER), null)
  t.match(resources.health(), { ok: true })
  t.same([...kept.keys()], ['studio'])
})

/** A folder with one ApiKey, and a Secret for it that is not written yet. */
async function openWithKey(t: Test) {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'studio', { secretName: 'ci-key' }))
  const { resources } = await openWatched(folder)
  const key = resources.list('ApiKey')[0]!
  const secret = { apiKey: 'svc_live_x', keyId: 'uid-1-0', mac: 'aa' }
  return { folder, resources, key, secret }
}

t.test('only the owner of the process can read Secrets and statuses, whatever modes the files had', async (t) => {
  const { folder, resources, key, secret } = await openWithKey(t)
  await resources.putSecret(key, 'ci-key', secret)
  await resources.setStatus(CI, { observedGeneration: 1, conditions: [] })
  const path = join(folder.secrets, 'acme', 'ci-key')
  const modes = async () => Promise.all(['.', 'api-key', 'key-id', '.owner'].map(async (entry) => ((await stat(join(path, entry))).mode & 0o777).toString(8)))
  t.same(await modes(), ['700', '600', '600', '600'])
  t.equal((await stat(join(folder.status, 'acme', 'apikey', 'ci.yaml'))).mode & 0o777, 0o600)
  await chmod(path, 0o755)
  await chmod(join(path, 'api-key'), 0o644)
  t.equal(await resources.putSecret(key, 'ci-key', secret), 'written')
  t.same(await modes(), ['700', '600', '600', '600'])
  t.equal(await readFile(join(path, 'api-key'), 'utf8'), 'svc_live_x', 'exactly the key, without a line end')
})

t.test('a link, a file or a folder without a valid .owner is foreign, even with the right entries in it', async (t) => {
  const { folder, resources, key, secret } = await openWithKey(t)
  const path = join(folder.secrets, 'acme', 'ci-key')
  await mkdir(join(folder.secrets, 'acme', 'elsewhere'), { recursive: true })
  const foreign = [
    () => symlink('elsewhere', path),
    () => writeFile(path, 'x'),
    () => mkdir(path),
    () => mkdir(path).then(() => writeFile(join(path, 'api-key'), secret.apiKey)),
    () => mkdir(path).then(() => writeFile(join(path, '.owner'), '{"uid":"uid-1"}')),
    () => mkdir(path).then(() => writeFile(join(path, '.owner'), JSON.stringify({ uid: 'uid-9', name: 'ci', createdAt: 1, mac: '' }))),
  ]
  for (const make of foreign) {
    await make()
    t.equal(await resources.putSecret(key, 'ci-key', secret), 'conflict')
    t.equal(await resources.secret(key, 'ci-key'), null)
    await rm(path, { recursive: true })
  }
  t.same(await entriesOf(join(folder.secrets, 'acme', 'elsewhere')), {})
  t.equal(await resources.putSecret(key, 'ci-key', secret), 'written')
})

t.test('a Secret that cannot be read is neither absent nor foreign, and is removed with its ApiKey', async (t) => {
  const { folder, resources, key, secret } = await openWithKey(t)
  await resources.putSecret(key, 'ci-key', secret)
  const owner = join(folder.secrets, 'acme', 'ci-key', '.owner')
  await rename(owner, `${owner}.away`)
  // Reading it fails with EIO.
  await symlink('/proc/self/mem', owner)
  await t.rejects(resources.putSecret(key, 'ci-key', secret), Unavailable)
  await t.rejects(resources.secret(key, 'ci-key'), Unavailable)
  await resources.removeSecrets({ ...CI, uid: key.metadata.uid })
  t.equal(await entriesOf(join(folder.secrets, 'acme', 'ci-key')), null)
})

t.test('the next start removes what an interrupted write or a missed deletion left', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'studio', { secretName: 'ci-key' }))
  const first = await openWatched(folder)
  await first.resources.putSecret(first.resources.list('ApiKey')[0]!, 'ci-key', { apiKey: 'x', keyId: 'y', mac: 'z' })
  await first.resources.setStatus(CI, { observedGeneration: 1, conditions: [] })
  await first.resources.close()
  const secrets = join(folder.secrets, 'acme')
  await mkdir(join(secrets, '.tmp-1'))
  await writeFile(join(secrets, 'ci-key', '.tmp-2'), 'half')
  await mkdir(join(secrets, 'orphan'))
  await writeFile(join(secrets, 'orphan', '.owner'), JSON.stringify({ uid: 'uid-7', name: 'gone', createdAt: 1, mac: '' }))
  await writeFile(join(folder.status, 'acme', 'apikey', '.tmp-3'), 'half')
  await writeFile(join(folder.status, 'acme', 'apikey', 'gone.yaml'), 'conditions: []')
  await openWatched(folder)
  t.same(await Promise.all(['.tmp-1', 'ci-key/.tmp-2', 'orphan', 'ci-key/api-key'].map((name) => stat(join(secrets, name)).then(() => name, () => null))), [null, null, null, 'ci-key/api-key'])
  t.same(await Promise.all(['.tmp-3', 'gone.yaml', 'ci.yaml'].map((name) => stat(join(folder.status, 'acme', 'apikey', name)).then(() => name, () => null))), [null, null, 'ci.yaml'])
})

t.test('a store restored from an older backup takes a key\'s identity from its Secret', async (t) => {
  const folder = await openFolder(t)
  await folder.write('a.yaml', apiKey('ci', 'studio', { secretName: 'ci-key' }), mediaPlan('studio'))
  const first = await openWatched(folder)
  const key = first.resources.list('ApiKey')[0]!
  await first.resources.putSecret(key, 'ci-key', { apiKey: 'x', keyId: 'y', mac: 'z' })
  await first.resources.close()
  for (const ref of [CI, STUDIO]) await folder.declarations.undeclare(ref)
  folder.time.now += 60_000
  const { resources } = await openWatched(folder)
  t.match(resources.get(CI), { metadata: { uid: key.metadata.uid, creationTimestamp: key.metadata.creationTimestamp } })
  t.same(await resources.secret(key, 'ci-key'), { apiKey: 'x', keyId: 'y', mac: 'z' })
})
