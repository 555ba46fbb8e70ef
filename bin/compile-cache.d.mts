/** `roleOrCommand`: as in `tollgate [role]`. */
export function openCompileCache(roleOrCommand: string): () => void
