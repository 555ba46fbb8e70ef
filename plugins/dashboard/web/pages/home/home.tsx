import { PageHead } from '../../components/card.tsx'

export function Home() {
  return <PageHead title="Home" />
}
