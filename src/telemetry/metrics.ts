/** Metrics of a Prometheus registry (`docs/metrics.md`). */
import { Counter, Gauge, Histogram, type Registry } from 'prom-client'

/** Makes metrics in this registry, with the names of their labels. Each throws for a name that the registry has. */
export function metersOf(registry: Registry) {
  const registers = [registry]
  return {
    counter: <L extends string>(name: string, help: string, ...labelNames: L[]) => new Counter({ name, help, labelNames, registers }),
    gauge: <L extends string>(name: string, help: string, ...labelNames: L[]) => new Gauge({ name, help, labelNames, registers }),
    histogram: <L extends string>(name: string, help: string, buckets: number[], ...labelNames: L[]) =>
      new Histogram({ name, help, buckets, labelNames, registers }),
    /** A counter whose values `read` adds anew at each scrape. */
    countedBy<L extends string>(name: string, help: string, labelNames: L[], read: (counter: Counter<L>) => void): void {
      const collect = () => {
        counter.reset()
        read(counter)
      }
      const counter = new Counter({ name, help, labelNames, registers, collect })
    },
    /** A gauge that `read` sets at each scrape. */
    gaugedBy<L extends string>(name: string, help: string, labelNames: L[], read: (gauge: Gauge<L>) => void | Promise<void>): void {
      const gauge: Gauge<L> = new Gauge({ name, help, labelNames, registers, collect: () => read(gauge) })
    },
  }
}
