/** Parser of the Dockerfile, so that it stays the only description of the image. */

/** Paths are those of the Dockerfile: sources relative to the checkout, targets in the image. */
export type Recipe = {
  /** Copies from the checkout in the last stage. */
  copies: { from: string; to: string }[]
  workdir: string
  env: Record<string, string>
  user: string
  ports: string[]
  entrypoint: string[]
}

/** Parses the last stage of a Dockerfile as simple as ours. Throws for an unsupported instruction. */
export function readDockerfile(text: string): Recipe {
  const recipe: Recipe = { copies: [], workdir: '/', env: {}, user: '0:0', ports: [], entrypoint: [] }
  for (const line of text.split('\n').map((each) => each.trim())) {
    const [instruction = '', ...words] = line.split(/\s+/)
    if (line === '' || line.startsWith('#')) continue
    if (instruction === 'FROM') Object.assign(recipe, { copies: [], workdir: '/', env: {} })
    else if (instruction === 'WORKDIR') recipe.workdir = words[0] ?? '/'
    else if (instruction === 'ENV') for (const word of words) recipe.env[word.split('=', 1)[0] ?? ''] = word.slice(word.indexOf('=') + 1)
    else if (instruction === 'USER') recipe.user = words[0] ?? ''
    else if (instruction === 'EXPOSE') recipe.ports = words
    else if (instruction === 'ENTRYPOINT') recipe.entrypoint = JSON.parse(words.join(' '))
    else if (instruction === 'COPY') recipe.copies.push(...copiesOf(words))
    else if (instruction !== 'RUN') throw new Error(`image/dockerfile.ts does not support the instruction ${instruction}`)
  }
  return recipe
}

/** Copies from another stage are skipped: rootfs.ts makes those files. The target of a folder has its own name, that of a file has not. */
function copiesOf(words: string[]): Recipe['copies'] {
  if (words.some((word) => word.startsWith('--from='))) return []
  const target = words.at(-1) ?? ''
  return words.slice(0, -1).map((from) => ({ from, to: target === './' ? from : target }))
}
