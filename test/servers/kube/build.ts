/** Kubernetes and its tools as entries of the cache, built from the Go module proxy. */
import { mkdir, readFile, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { Entry } from '../cache.ts'
import { go, goProgram, lacksGo } from '../go.ts'

export const VERSION = '1.36.3'
const PROGRAMS = ['kube-apiserver', 'kubectl', 'kube-controller-manager']

type Module = { GoMod: string; Dir: string }

async function download(module: string, folder: string): Promise<Module> {
  return JSON.parse(await go(['mod', 'download', '-json', module], folder, { GOFLAGS: '-mod=mod' })) as Module
}

/**
 * Kubernetes' published go.mod replaces its own modules by local folders, so that `go install` refuses it. The same file with replacements by the published
 * versions is a complete module graph, which pins etcd as well.
 */
async function wrap(folder: string): Promise<void> {
  const { GoMod, Dir } = await download(`k8s.io/kubernetes@v${VERSION}`, folder)
  const staging = VERSION.replace(/^1\./, 'v0.')
  const text = (await readFile(GoMod, 'utf8'))
    .replace(/^module k8s\.io\/kubernetes$/m, 'module tollgate.invalid/kube')
    .replace(/=> \.\/staging\/src\/(k8s\.io\/[a-z0-9-]+)$/gm, `=> $1 ${staging}`)
  await writeFile(join(folder, 'go.mod'), `${text}\nrequire k8s.io/kubernetes v${VERSION}\n`)
  // Read, not copied: files of the module cache are read-only.
  await writeFile(join(folder, 'go.sum'), await readFile(join(Dir, 'go.sum')))
}

/** In one build, so that one program is linked while another one is compiled. */
async function build(programs: string[], source: string, folder: string): Promise<void> {
  const version = 'k8s.io/component-base/version'
  const [major, minor] = VERSION.split('.')
  // Without these /version reports v0.0.0, which Helm refuses.
  const facts = [`${version}.gitVersion=v${VERSION}`, `${version}.gitMajor=${major}`, `${version}.gitMinor=${minor}`, `${version}.gitTreeState=clean`]
  const ldflags = `-s -w ${facts.map((fact) => `-X ${fact}`).join(' ')}`
  await go(['build', '-mod=mod', '-buildvcs=false', '-trimpath', `-ldflags=${ldflags}`, '-o', `${folder}/`, ...programs.map((program) => `k8s.io/kubernetes/cmd/${program}`)], source)
}

/** Builds these programs of Kubernetes into the folder, and the etcd that they require with `{ etcd: true }`. */
export async function buildKubernetes(programs: string[], folder: string, { etcd = false } = {}): Promise<void> {
  const source = join(folder, 'source')
  await mkdir(source)
  await wrap(source)
  await build(programs, source, folder)
  if (etcd) await go(['build', '-mod=mod', '-buildvcs=false', '-trimpath', '-ldflags=-s -w', '-o', join(folder, 'etcd'), 'go.etcd.io/etcd/server/v3'], source)
  await rm(source, { recursive: true })
}

/** The folder of the program has the layout that KUBEBUILDER_ASSETS promises. The first start on a machine takes about ten minutes. */
const kubernetes: Entry = {
  name: 'kubernetes',
  version: VERSION,
  program: 'kube-apiserver',
  lacks: lacksGo,
  install: (folder) => buildKubernetes(PROGRAMS, folder, { etcd: true }),
}

export const KUBERNETES: readonly Entry[] = [
  kubernetes,
  goProgram('helm', 'helm.sh/helm/v4/cmd/helm', '4.3.1'),
  goProgram('helm3', 'helm.sh/helm/v3/cmd/helm', '3.22.0'),
  goProgram('kubeconform', 'github.com/yannh/kubeconform/cmd/kubeconform', '0.8.0'),
  goProgram('kube-score', 'github.com/zegl/kube-score/cmd/kube-score', '1.20.0'),
]
