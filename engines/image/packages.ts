/** The packages of this engine: which are installed, and what lacks one. Finding one loads nothing. */
import { existsSync } from 'node:fs'
import { findPackageJSON } from 'node:module'
import { dirname, join, sep } from 'node:path'

const SHARP = 'sharp'
const RUNTIME = 'onnxruntime-node'
/** Needed to start a child with limits and an empty environment. A minimal container may lack them. */
const CHILD_PROGRAMS = ['/bin/sh', '/usr/bin/env']

/** Why pictures cannot be edited here, with a network or without: a sentence for the operator, or null. */
export function missingHere(withNetwork: boolean): string | null {
  const lacking = [SHARP, ...(withNetwork ? [RUNTIME] : [])].filter((name) => packageFolder(name) === null)
  if (lacking.length > 0)
    return `${lacking.join(' and ')} ${lacking.length > 1 ? 'are' : 'is'} not installed: npm install --include=optional`
  const programs = CHILD_PROGRAMS.filter((path) => !existsSync(path))
  if (programs.length > 0) return `${programs.join(' and ')} missing: a child process cannot be started here`
  const bare = hasSharpBinary() ? (withNetwork && !hasRuntimeBinary() ? RUNTIME : null) : SHARP
  return bare && `${bare} is installed without its library for ${process.platform} on ${process.arch}: npm install --include=optional`
}

function hasSharpBinary(): boolean {
  const systems = process.platform === 'linux' ? ['linux', 'linuxmusl'] : [process.platform]
  return ['wasm32', ...systems.map((system) => `${system}-${process.arch}`)].some((build) => packageFolder(`@img/sharp-${build}`) !== null)
}

function hasRuntimeBinary(): boolean {
  return existsSync(join(packageFolder(RUNTIME) ?? '', 'bin/napi-v6', process.platform, process.arch))
}

/** The folders that the installed packages lie in. */
export function packageFolders(): string[] {
  const folders = [SHARP, RUNTIME].flatMap((name) => packageFolder(name) ?? [])
  const modules = `${sep}node_modules${sep}`
  return [...new Set(folders.map((folder) => folder.slice(0, folder.lastIndexOf(modules) + modules.length - 1)))]
}

function packageFolder(name: string): string | null {
  try {
    const manifest = findPackageJSON(name, import.meta.url)
    return manifest === undefined ? null : dirname(manifest)
  } catch {
    return null
  }
}
