"""A run, from sources to committed rows: the main path of longdoc, told once.

Owns the order of the steps. Every document ends committed or quarantined; what stops the run itself (a lost worker, a
full disk, Ctrl-C) leaves the rest for the next run, which takes up exactly what is missing.
"""

from collections.abc import Sequence

from longdoc.cluster.stream import open_stream
from longdoc.config import RunConfig
from longdoc.estimate import ModelShape, fits_now
from longdoc.model.sources import find_model
from longdoc.outputs.convention import configuration_of, settled
from longdoc.outputs.document_row import output_identity
from longdoc.records import Source
from longdoc.reporting import Reporter, skipped_lines
from longdoc.runs.finish import Finisher
from longdoc.runs.planning import find_documents, plan_run
from longdoc.runs.reconcile import check_finished
from longdoc.runs.record import RunSummary, recorded
from longdoc.runs.setup import announce, announce_ring, check_layout, grown, ingest_spec, opened
from longdoc.runs.site import Site, site_of


def run(config: RunConfig, sources: Sequence[Source], reporter: Reporter) -> RunSummary:
    """Run every document of the sources that the output does not hold yet. Raises `LongdocError`."""
    with site_of(config, reporter) as site:
        return _run(site.settled(config), site, sources, reporter)


def _run(config: RunConfig, site: Site, sources: Sequence[Source], reporter: Reporter) -> RunSummary:
    ring = site.ring(config)
    for line in skipped_lines(sources):
        reporter.note(line)
    refs, unreadable = find_documents(sources)
    model = find_model(config.model, report=reporter.note)
    config = settled(config, model, reporter.note)
    check_layout(config, model)
    models = site.models(config, model)
    shape = ModelShape.of(model, config.resolved_dtype, ring.device)
    ring = grown(ring, config, shape, refs)
    ingest = ingest_spec(config, model, ring)
    with opened(config.output, output_identity(config, model)) as store:
        store.recover()
        plan = plan_run(
            refs,
            unreadable,
            configuration=configuration_of(config, model),
            store=store,
            retry_quarantine=config.retry_quarantine,
            fits_now=lambda needs: fits_now(needs, shape, ring.num_ranks, ingest.capacity(ring.num_ranks)),
        )
        reporter.planned(
            todo=[document.ref for document in plan.todo],
            num_committed=plan.num_committed,
            num_quarantined=plan.num_quarantined,
        )
        with recorded(store, config, model, [source.source_uri for source in sources]) as record:
            rates = site.rates(config, model, ring)
            finisher = Finisher(config=config, model=model, store=store, reporter=reporter, record=record, rates=rates)
            for found in plan.unreadable:
                finisher.set_aside(found)
            if plan.todo:
                announce(config, model, ring, ingest, reporter)
                with (
                    site.ray(ring),
                    open_stream(
                        plan.todo,
                        ring=ring,
                        ingest=ingest,
                        model=model,
                        dtype=config.resolved_dtype,
                        kernel=config.kernel,
                        models=models,
                    ) as (stream, group),
                ):
                    announce_ring(group, reporter)
                    for document in stream.documents(reporter):
                        finisher.finish(document, group)
            return record.summary(
                num_planned=len(plan.documents) + len(plan.unreadable),
                num_committed_before=plan.num_committed,
                quarantined=check_finished(plan, store),
            )
