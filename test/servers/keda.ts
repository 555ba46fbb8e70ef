/** KEDA as an entry of the cache: its project publishes images only, so both programs are built from its source, and the manifests are those of its repository without the admission webhooks. */
import { cp, mkdir, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from './cache.ts'
import { command } from './command.ts'
import { go, lacksGo } from './go.ts'
import { image } from './kube/node-tools.ts'

const VERSION = '2.21.0'
const PROGRAMS = [
  { source: 'operator', program: 'keda', published: 'ghcr.io/kedacore/keda' },
  { source: 'adapter', program: 'keda-adapter', published: 'ghcr.io/kedacore/keda-metrics-apiserver' },
]
const PARTS = ['crd', 'general', 'rbac', 'manager', 'metrics-server', 'service_account']

/** `config` has the manifests, for `kubectl apply --kustomize`; `keda.tar` and `keda-adapter.tar` are the images that they name. The build compiles 3,700 packages: about an hour beside other work. */
export const KEDA: Entry = {
  name: 'keda',
  version: VERSION,
  program: 'config/kustomization.yaml',
  lacks: lacksGo,
  async install(folder) {
    const source = join(folder, 'source')
    const { Dir } = JSON.parse(await go(['mod', 'download', '-json', `github.com/kedacore/keda/v2@v${VERSION}`], folder, { GOFLAGS: '-mod=mod' })) as { Dir: string }
    await cp(Dir, source, { recursive: true })
    // Files of the module cache are read-only.
    await command('chmod', ['--recursive', 'u+w', source])
    for (const { source: from, program } of PROGRAMS) {
      const root = join(folder, program)
      await mkdir(root)
      await go(['build', '-mod=mod', '-buildvcs=false', '-trimpath', '-ldflags=-s -w', '-o', join(root, program), `./cmd/${from}`], source)
      await image(root, join(folder, `${program}.tar`), `tollgate.test/${program}:1`, `/${program}`)
      await rm(root, { recursive: true })
    }
    await cp(join(source, 'config'), join(folder, 'config'), { recursive: true })
    await rm(source, { recursive: true })
    const images = PROGRAMS.map(({ program, published }) => ({ name: published, newName: `tollgate.test/${program}`, newTag: '1' }))
    const isImported = [{ op: 'replace', path: '/spec/template/spec/containers/0/imagePullPolicy', value: 'Never' }]
    const patches = [{ target: { kind: 'Deployment' }, patch: JSON.stringify(isImported) }]
    await writeFile(join(folder, 'config/kustomization.yaml'), JSON.stringify({ resources: PARTS, images, patches }))
  },
}
