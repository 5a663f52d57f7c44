"""RoBERTa with its heads (Liu et al. 2019, arXiv 1907.11692).

In training RobertaForSequenceClassification drops features before its dense map as well, which is not done
here; its scores are the same.
"""

from typing import Any

from tfcli.hub import Architecture
from tfcli.hub.architectures import bert
from tfcli.hub.fields import Asked, Field, Flat, Settings
from tfcli.hub.filling import Habits
from tfcli.hub.names import Name, Table


class Positions(Field):
    """Positions are counted from behind the padding token's id, and the table has the rows up to there."""

    def read(self, asked: Asked) -> Settings:
        pad, rows = asked.get("pad_token_id", 1), asked.get("max_position_embeddings", 512)
        if type(pad) is not int or pad < 0:
            raise asked.refused("pad_token_id", "must be the id from which positions are counted")
        if type(rows) is not int or rows < pad + 2:
            raise asked.refused("max_position_embeddings", f"must be a whole number of {pad + 2} or more")
        return {"size.context": rows - pad - 1, "position.offset": pad + 1}

    def write(self, our: Flat) -> dict[str, Any]:
        if not our.get("position.offset"):
            return {}
        offset = our["position.offset"]
        return {"pad_token_id": offset - 1, "max_position_embeddings": our["size.context"] + offset}


MASKED: Table = {
    "head.dense": "lm_head.dense",
    "head.norm": "lm_head.layer_norm",
    "head.map.weight": "lm_head.decoder.weight",
    "head.map.bias": Name("lm_head.bias", also=("lm_head.decoder.bias",)),
}

ARCHITECTURE = Architecture(
    model_type="roberta",
    settings={"preset": "roberta"},
    kinds={
        "RobertaForMaskedLM": bert.masked(MASKED),
        "RobertaModel": bert.vector("roberta."),
        "RobertaForSequenceClassification": bert.classification(
            {"head.dense": "classifier.dense", "head.map": "classifier.out_proj"}
        ),
        "RobertaForTokenClassification": bert.tagging(),
        "RobertaForQuestionAnswering": bert.span(),
    },
    fields=(*bert.SIZE, Positions(), *bert.REFUSED),
    names=bert.layers("roberta."),
    prefix="roberta.",
    habits=Habits(spare=bert.spare("roberta.")),
)
