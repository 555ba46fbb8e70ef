/** OCI image archive for `docker load` and `ctr images import`: an image layout of one layer, reproducible from the same folder. */
import { execFileSync } from 'node:child_process'
import { createHash } from 'node:crypto'
import { createReadStream, mkdirSync, mkdtempSync, renameSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { arch } from 'node:os'
import { dirname, join } from 'node:path'
import type { Recipe } from './dockerfile.ts'

const TYPE = 'application/vnd.oci.image'
/** Fixed owner and time, so that the archive is reproducible. */
const FIXED = ['--sort=name', '--mtime=@0', '--numeric-owner']

/** Writes the file system of `folder` as the image `name` (with its tag) to `file`. */
export async function writeArchive(folder: string, file: string, name: string, recipe: Recipe): Promise<void> {
  const layout = mkdtempSync(join(dirname(file), 'image-'))
  try {
    const blobs = join(layout, 'blobs/sha256')
    mkdirSync(blobs, { recursive: true })
    const put = async (path: string) => {
      const digest = await sha256(path)
      renameSync(path, join(blobs, digest))
      return { digest: `sha256:${digest}`, size: statSync(join(blobs, digest)).size }
    }
    const write = (path: string, content: object) => {
      writeFileSync(join(layout, path), JSON.stringify(content))
      return join(layout, path)
    }
    const layer = join(layout, 'layer')
    const data = `.${recipe.env['DATA_DIR'] ?? '/data'}`
    execFileSync('tar', [...FIXED, '--owner=0', '--group=0', `--exclude=${data}`, '-C', folder, '-cf', layer, '.'])
    const [user = '0', group = '0'] = recipe.user.split(':')
    execFileSync('tar', [...FIXED, `--owner=${user}`, `--group=${group}`, '-C', folder, '-rf', layer, data])
    const layers = [{ mediaType: `${TYPE}.layer.v1.tar`, ...(await put(layer)) }]
    const config = { mediaType: `${TYPE}.config.v1+json`, ...(await put(write('config', configOf(recipe, layers.map(({ digest }) => digest))))) }
    const manifest = await put(write('manifest', { schemaVersion: 2, mediaType: `${TYPE}.manifest.v1+json`, config, layers }))
    const annotations = { 'io.containerd.image.name': name, 'org.opencontainers.image.ref.name': name.slice(name.lastIndexOf(':') + 1) }
    write('index.json', { schemaVersion: 2, manifests: [{ mediaType: `${TYPE}.manifest.v1+json`, ...manifest, annotations }] })
    write('oci-layout', { imageLayoutVersion: '1.0.0' })
    // Docker without the containerd image store reads this file.
    const blob = (digest: string) => digest.replace(':', '/')
    write('manifest.json', [{ Config: `blobs/${blob(config.digest)}`, RepoTags: [name], Layers: layers.map(({ digest }) => `blobs/${blob(digest)}`) }])
    execFileSync('tar', [...FIXED, '--owner=0', '--group=0', '-C', layout, '-cf', file, 'blobs', 'index.json', 'manifest.json', 'oci-layout'])
  } finally {
    rmSync(layout, { recursive: true })
  }
}

function configOf({ env, user, workdir, entrypoint, ports }: Recipe, layers: string[]): object {
  const config = {
    Env: Object.entries({ PATH: '/usr/local/bin', ...env }).map(([key, value]) => `${key}=${value}`),
    User: user,
    WorkingDir: workdir,
    Entrypoint: entrypoint,
    ExposedPorts: Object.fromEntries(ports.map((port) => [`${port}/tcp`, {}])),
  }
  return { architecture: arch() === 'x64' ? 'amd64' : arch(), os: 'linux', config, rootfs: { type: 'layers', diff_ids: layers } }
}

async function sha256(path: string): Promise<string> {
  const hash = createHash('sha256')
  for await (const bytes of createReadStream(path)) hash.update(bytes as Buffer)
  return hash.digest('hex')
}
