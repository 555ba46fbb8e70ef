export function openCompileCache(): () => void
export function limitStartMemory(roleOrCommand: string, flagsChanged: () => void): () => void
export function setStartFlags(flagsChanged: () => void): void
export function growYoungGeneration(perSecond?: number, windowMs?: number): void
