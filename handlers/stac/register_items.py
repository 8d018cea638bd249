"""`raster.stac_register_items`: the items of a batch of COGs, each read back; all of them or none."""

from collections import Counter
from typing import Any

from core.errors import Finding, ParameterInvalid
from core.stac_params import RegisterItemParams, RegisterItemsParams
from handlers.context import Outcome, ProcessContext
from handlers.stac.register_item import register_item


def register_items(ctx: ProcessContext, params: RegisterItemsParams) -> Outcome:
    """Return the items of several COGs in one collection, in their order; nothing is catalogued here.

    Raises:
        ParameterInvalid: an id occurs twice, of which the catalogue would keep one item; or a date is none.
        StorageUnavailable: stored bytes are not those that were written; tried again.
    """
    ids = [one.item_id for one in params.items]
    twice = [item_id for item_id, count in Counter(ids).items() if count > 1]
    if twice:
        raise ParameterInvalid(f"item {twice[0]!r} is in the batch twice", field="items", value=twice[0][:100])
    items: list[dict[str, Any]] = []
    findings: list[Finding] = []
    for number, one in enumerate(params.items):
        ctx.raise_if_cancelled()
        ctx.progress(number, len(ids), "reading COGs back")
        shared: dict[str, Any] = {"collection_id": params.collection_id, "version_label": params.version_label}
        own = one.model_dump(include={"cog", "cog_facts", "item_id", "title", "description", "href"})
        options = one.options or params.options
        single = RegisterItemParams(**shared, **own, properties=params.properties, options=options)
        made = register_item(ctx, single)
        assert isinstance(made.output, dict)
        items.append(made.output["stac_item"])
        findings += made.findings
    output = {"stac_collection_id": params.collection_id, "stac_item_ids": ids, "stac_items": items}
    return Outcome(output, findings=tuple(findings))
