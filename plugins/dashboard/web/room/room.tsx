import { PageHead } from '../components/card.tsx'

export function Room() {
  return <PageHead title="AI Room" />
}
